#!/bin/bash
# Turns enroot and pyxis on: directories, enroot.conf; Slurm's part comes from the head node.
# needs: enroot and spank_pyxis.so of the image; without enroot it does nothing
# permission: root
# how often: once a node; safe to run again: Slurm is told only what changed
# on failure: report
# timeout: 90 s
# takes: about 0.4 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/common.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/common.sh"
# shellcheck source-path=SCRIPTDIR source=../../nodes/container-runtime.sh
source "$SLIPWAY_BUNDLE/nodes/container-runtime.sh"

runtime::main compute
