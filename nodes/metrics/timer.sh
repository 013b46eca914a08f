# shellcheck shell=bash
# timer.sh: a timer that writes metrics for the node exporter. Sourced by the steps, after all.sh.

readonly METRICS_DIR=/usr/local/libexec/slipway

# Starts slipway-NAME.timer, which runs NAME.py. Its file is written new each time, so a change needs no restart.
metrics::timer() { # NAME
  local unit=slipway-$1 file
  mkdir -p "$METRICS_DIR"
  for file in textfile infiniband "$1"; do
    file::put "$SLIPWAY_BUNDLE/nodes/metrics/$file.py" "$METRICS_DIR/$file.py" 0755
  done
  for file in "$unit.service" "$unit.timer"; do
    file::put "$SLIPWAY_BUNDLE/nodes/metrics/units/$file" "/etc/systemd/system/$file" 0644
  done
  unit::ensure "$unit.timer" "/etc/systemd/system/$unit.timer" "/etc/systemd/system/$unit.service"
}
