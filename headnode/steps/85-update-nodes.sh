#!/bin/bash
# Updates the running compute nodes to this release, each when its jobs have ended; at the first set-up there are none.
# needs: Slurm's controller
# permission: root
# how often: with each set-up; safe to run again: a node gets one job
# on failure: report
# timeout: 120 s
# takes: about 0.1 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

update_nodes::main() {
  local fsx
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  if ! grep --quiet --no-messages '"kind": "compute"' "$fsx"/logs/slipway/nodes/*.json; then
    log::info "no compute node has been set up yet: each takes this release when it starts"
    return 0
  fi
  "$SLIPWAY_BUNDLE/nodes/update/running-nodes.sh"
}

update_nodes::main
