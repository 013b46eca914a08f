#!/bin/bash
# Queues the build of NCCL for all nodes, or of nccl-tests for acceptance; it goes on in the background.
# needs: 10-fsx-layout, systemd
# permission: root
# how often: once a head node; safe to run again: a version that is built is not built again
# on failure: report
# timeout: 60 s
# takes: about 0.5 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/nccl-tests.sh
source "$SLIPWAY_BUNDLE/nodes/lib/nccl-tests.sh"

readonly UNIT=slipway-nccl.service
readonly LOG=$SLIPWAY_LOG_DIR/nccl.log

nccl::main() {
  local fsx
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  nccl_tests::link "$fsx"
  file::render "$UNIT.j2" "/etc/systemd/system/$UNIT" 0644
  unit::enable "$UNIT"
  # acceptance waits for a build that is queued: said before it is.
  systemctl is-active --quiet "$UNIT" || background::status nccl waiting 'queued' "$LOG"
  # Not waited for: a build takes minutes, and the bootstrap action has 35 of them for everything.
  systemctl start --no-block "$UNIT"
  log::info "queued: follow $LOG"
}

nccl::main
