#!/bin/bash
# Keeps kernel, Lustre client, NVIDIA driver and EFA at the versions of the image.
# needs: apt or dnf
# permission: root
# how often: once a node; safe to run again: only what is installed and not yet held is held
# on failure: report
# timeout: 90 s
# takes: about 0.9 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/common.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/common.sh"
# shellcheck source-path=SCRIPTDIR source=../../nodes/hold-packages.sh
source "$SLIPWAY_BUNDLE/nodes/hold-packages.sh"

hold::main
