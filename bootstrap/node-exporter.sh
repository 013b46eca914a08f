# shellcheck shell=bash
# node-exporter.sh: the node exporter, the same on every node. Sourced by the steps, after common.sh.

readonly NODE_EXPORTER_UNIT=slipway-node-exporter.service
readonly NODE_EXPORTER_URL=http://127.0.0.1:9100/metrics

node_exporter::main() {
  local unit=/etc/systemd/system/$NODE_EXPORTER_UNIT
  env::load "$SLIPWAY_NODE_ENV"
  software::install node_exporter node_exporter
  unit::user node-exporter
  file::put "$SLIPWAY_BUNDLE/bootstrap/units/$NODE_EXPORTER_UNIT" "$unit" 0644
  unit::ensure "$NODE_EXPORTER_UNIT" "$unit" "$SLIPWAY_SOFTWARE_DIR/node_exporter/current/.sha256"
  unit::wait_http "$NODE_EXPORTER_UNIT" "$NODE_EXPORTER_URL"
}
