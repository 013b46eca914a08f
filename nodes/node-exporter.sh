# shellcheck shell=bash
# node-exporter.sh: the node exporter and what writes EFA and Lustre metrics for it. Sourced by the steps, after common.sh.

readonly NODE_EXPORTER_UNIT=slipway-node-exporter.service
readonly NODE_EXPORTER_URL=http://127.0.0.1:9100/metrics
readonly NODE_EXPORTER_HOME=/var/lib/node-exporter
readonly COLLECTORS_DIR=/usr/local/libexec/slipway
readonly SYSTEMD_UNITS=/etc/systemd/system

node_exporter::main() {
  env::load "$SLIPWAY_NODE_ENV"
  software::install node_exporter node_exporter
  unit::user node-exporter
  file::directory "$NODE_EXPORTER_HOME" 0755
  file::directory "$NODE_EXPORTER_HOME/textfile" 0755
  file::put "$SLIPWAY_BUNDLE/nodes/units/$NODE_EXPORTER_UNIT" "$SYSTEMD_UNITS/$NODE_EXPORTER_UNIT" 0644
  unit::ensure "$NODE_EXPORTER_UNIT" "$SYSTEMD_UNITS/$NODE_EXPORTER_UNIT" "$SLIPWAY_SOFTWARE_DIR/node_exporter/current/.sha256"
  node_exporter::timer node-metrics
  unit::wait_http "$NODE_EXPORTER_UNIT" "$NODE_EXPORTER_URL"
}

# Starts slipway-NAME.timer, which runs NAME.py. Its file is written new each time, so a change needs no restart.
node_exporter::timer() { # NAME
  local unit=slipway-$1 file
  mkdir -p "$COLLECTORS_DIR"
  for file in textfile infiniband "$1"; do
    file::put "$SLIPWAY_BUNDLE/nodes/collectors/$file.py" "$COLLECTORS_DIR/$file.py" 0755
  done
  for file in "$unit.service" "$unit.timer"; do
    file::put "$SLIPWAY_BUNDLE/nodes/units/$file" "$SYSTEMD_UNITS/$file" 0644
  done
  unit::ensure "$unit.timer" "$SYSTEMD_UNITS/$unit.timer" "$SYSTEMD_UNITS/$unit.service"
}
