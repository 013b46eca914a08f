# shellcheck shell=bash
# timer.sh: a timer that writes metrics for the node exporter. Sourced by the steps, after all.sh.

# Starts slipway-NAME.timer, which runs a program of the release in use: a new release needs no restart.
metrics::timer() { # NAME
  local unit=slipway-$1 file
  for file in "$unit.service" "$unit.timer"; do
    file::put "$SLIPWAY_BUNDLE/nodes/metrics/units/$file" "/etc/systemd/system/$file" 0644
  done
  unit::ensure "$unit.timer" "/etc/systemd/system/$unit.timer" "/etc/systemd/system/$unit.service"
}
