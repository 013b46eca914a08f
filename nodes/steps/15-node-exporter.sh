#!/bin/bash
# Starts the node exporter (port 9100), and the timer that writes EFA and Lustre metrics for it.
# needs: systemd, the pinned node_exporter release or a mirror
# runs on: headnode compute
# permission: root
# how often: once a node; safe to run again
# on failure: report
# timeout: 300 s
# takes: about 3.4 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib/all.sh"
# shellcheck source-path=SCRIPTDIR source=../metrics/timer.sh
source "$SLIPWAY_BUNDLE/nodes/metrics/timer.sh"

readonly UNIT=slipway-node-exporter.service
readonly UNIT_FILE=/etc/systemd/system/$UNIT

node_exporter::main() {
  env::load "$SLIPWAY_NODE_ENV"
  # First what does not come from outside: other programs write to the directory.
  unit::user node-exporter
  file::directory /var/lib/node-exporter 0755
  file::directory /var/lib/node-exporter/textfile 0755
  software::install node_exporter node_exporter
  file::put "$SLIPWAY_BUNDLE/nodes/metrics/units/$UNIT" "$UNIT_FILE" 0644
  unit::ensure "$UNIT" "$UNIT_FILE" "$SLIPWAY_SOFTWARE_DIR/node_exporter/current/.sha256"
  metrics::timer node-metrics
  unit::wait_http "$UNIT" http://127.0.0.1:9100/metrics
}

node_exporter::main
