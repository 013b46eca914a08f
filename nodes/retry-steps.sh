#!/bin/bash
# retry-steps.sh KIND: runs the steps again that could not fetch their software, so that a failed download heals.
# needs: the bundle in /opt/slipway/current; KIND is headnode or compute
# permission: root
# how often: by slipway-retry.timer, every 15 minutes; does nothing while no such step was reported
# on failure: exit 1; the step's record says why, and the timer tries again
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/all.sh"

# Steps that fetch from the internet or the mirror, with those that need what they fetch.
readonly RETRIED=(15-node-exporter 16-gpu-containers 20-prometheus 26-slurm-metrics)

retry_steps::main() { # KIND
  local name step again=0
  mkdir -p "$SLIPWAY_LOG_DIR"
  file::lock /run/slipway/setup.lock
  exec 9>/run/slipway/setup.lock
  flock --nonblock 9 || return 0 # a set-up runs: it runs the steps itself
  env::load "$SLIPWAY_NODE_ENV"
  for name in "${RETRIED[@]}"; do
    grep --quiet --no-messages '"status": "reported"' "$SLIPWAY_STATE_DIR/steps/$name.json" || continue
    for step in "$SLIPWAY_BUNDLE"/{nodes,"$1"}/steps/"$name.sh"; do
      [ ! -f "$step" ] || steps::run_one "$1" "$step"
    done
    again=1
  done
  [ "$again" -eq 0 ] || "$SLIPWAY_BUNDLE/nodes/status/node_status.py" --share
}

retry_steps::main "$1"
