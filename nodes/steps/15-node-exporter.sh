#!/bin/bash
# Starts the node exporter (port 9100), and what gives it EFA and Lustre metrics.
# needs: systemd, the pinned node_exporter release or a mirror
# runs on: headnode compute
# permission: root
# how often: once a node; safe to run again
# on failure: report
# timeout: 300 s
# takes: about 2.5 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib/all.sh"
# shellcheck source-path=SCRIPTDIR source=../metrics/timer.sh
source "$SLIPWAY_BUNDLE/nodes/metrics/timer.sh"

readonly NODE_EXPORTER_UNIT=slipway-node-exporter.service
readonly NODE_EXPORTER_URL=http://127.0.0.1:9100/metrics
readonly NODE_EXPORTER_HOME=/var/lib/node-exporter

node_exporter::main() {
  env::load "$SLIPWAY_NODE_ENV"
  software::install node_exporter node_exporter
  unit::user node-exporter
  file::directory "$NODE_EXPORTER_HOME" 0755
  file::directory "$NODE_EXPORTER_HOME/textfile" 0755
  file::put "$SLIPWAY_BUNDLE/nodes/metrics/units/$NODE_EXPORTER_UNIT" "/etc/systemd/system/$NODE_EXPORTER_UNIT" 0644
  unit::ensure "$NODE_EXPORTER_UNIT" "/etc/systemd/system/$NODE_EXPORTER_UNIT" "$SLIPWAY_SOFTWARE_DIR/node_exporter/current/.sha256"
  metrics::timer node-metrics
  unit::wait_http "$NODE_EXPORTER_UNIT" "$NODE_EXPORTER_URL"
}

node_exporter::main
