#!/bin/bash
# Starts the timer that runs the steps again whose software could not be fetched.
# needs: systemd
# runs on: headnode compute
# permission: root
# how often: once a node; safe to run again
# on failure: report
# timeout: 60 s
# takes: about 0.4 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib/all.sh"

readonly UNITS=/etc/systemd/system

retry_timer::main() {
  env::load "$SLIPWAY_NODE_ENV"
  file::put - "$UNITS/slipway-retry.service" 0644 <<UNIT
[Unit]
Description=Run the steps of Slipway again whose software could not be fetched

[Service]
Type=oneshot
ExecStart=/opt/slipway/current/nodes/retry-steps.sh $(env::get NODE_KIND)
TimeoutStartSec=15min
UNIT
  file::put - "$UNITS/slipway-retry.timer" 0644 <<UNIT
[Unit]
Description=Try failed downloads again, every 15 minutes

[Timer]
OnActiveSec=15min
OnUnitInactiveSec=15min
RandomizedDelaySec=60

[Install]
WantedBy=timers.target
UNIT
  unit::ensure slipway-retry.timer "$UNITS"/slipway-retry.{service,timer}
}

retry_timer::main
