#!/bin/bash
# Starts the node exporter (port 9100), and what gives it EFA and Lustre metrics.
# needs: systemd, the pinned node_exporter release or a mirror
# permission: root
# how often: once a node; safe to run again
# on failure: report
# timeout: 300 s
# takes: about 2.5 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/common.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/common.sh"
# shellcheck source-path=SCRIPTDIR source=../../nodes/node-exporter.sh
source "$SLIPWAY_BUNDLE/nodes/node-exporter.sh"

node_exporter::main
