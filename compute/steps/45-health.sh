#!/bin/bash
# Starts the health checks: a timer judges the node, and drains it in Slurm when it is broken.
# needs: systemd, python3, instances.json of the bundle
# permission: root
# how often: once a node; safe to run again: started anew only when its files changed
# on failure: report
# timeout: 60 s
# takes: about 0.6 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

readonly SERVICE=slipway-health.service
readonly TIMER=slipway-health.timer
readonly UNITS=/etc/systemd/system

health::main() {
  local enabled interval
  env::load "$SLIPWAY_NODE_ENV"
  enabled=$(env::get HEALTH_ENABLED true)
  [[ $enabled =~ ^(true|false)$ ]] ||
    log::die "$SLIPWAY_NODE_ENV: HEALTH_ENABLED = '$enabled': neither true nor false" \
      "correct HEALTH_ENABLED in /etc/slipway/site.env and run the set-up again"
  interval=$(env::get_number HEALTH_INTERVAL_S 60)
  file::put "$SLIPWAY_BUNDLE/compute/slipway-health" /usr/local/bin/slipway-health 0755
  file::put "$SLIPWAY_BUNDLE/compute/units/$SERVICE" "$UNITS/$SERVICE" 0644
  file::render "$TIMER.j2" "$UNITS/$TIMER" 0644 "HEALTH_INTERVAL_S=$interval"
  if [ "$enabled" != true ]; then
    systemctl disable --quiet --now "$TIMER"
    log::info "HEALTH_ENABLED is $enabled: nothing judges this node; 'slipway-health' still looks when it is asked"
    return 0
  fi
  unit::ensure "$TIMER" "$UNITS/$TIMER" "$UNITS/$SERVICE"
  log::info "every $interval s: see /var/lib/slipway/health.json, or run slipway-health"
}

health::main
