#!/bin/bash
# Tells Prometheus which nodes to scrape: a timer writes the nodes that Slurm knows, every 15 seconds.
# needs: 20-prometheus, python3; Slurm may still be starting
# permission: root
# how often: once a head node; safe to run again
# on failure: stop
# timeout: 60 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../bootstrap/common.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../bootstrap/common.sh"

readonly SERVICE=slipway-slurm-targets.service
readonly TIMER=slipway-slurm-targets.timer
readonly UNITS=/etc/systemd/system

targets::main() {
  file::put "$SLIPWAY_BUNDLE/headnode/slurm-targets.py" /usr/local/libexec/slipway/slurm-targets.py 0755
  file::put "$SLIPWAY_BUNDLE/bootstrap/units/$SERVICE" "$UNITS/$SERVICE" 0644
  file::put "$SLIPWAY_BUNDLE/bootstrap/units/$TIMER" "$UNITS/$TIMER" 0644
  unit::ensure "$TIMER" "$UNITS/$TIMER" "$UNITS/$SERVICE"
}

mkdir -p /usr/local/libexec/slipway
targets::main
