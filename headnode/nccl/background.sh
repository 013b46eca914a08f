#!/bin/bash
# background.sh: what slipway-nccl.service does: NCCL for all nodes, or nccl-tests for acceptance, or nothing.
#
# NCCL_SOURCE=shared: installs the settings' versions once. A version that is installed or rolled back by hand later
# stays in use until the settings name other versions. NCCL_SOURCE=image: builds nccl-tests for acceptance, unless the
# image has them, acceptance is off, or no queue has GPUs.
#
# needs:       as install-nccl-shared.sh
# permission:  root, on the head node
# how often:   at every start of the head node and after every set-up; quick when there is nothing to do
# on failure:  exit 1; /var/lib/slipway/background/nccl.json says what failed, where its log is, what to do
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

readonly INSTALL=$SLIPWAY_BUNDLE/headnode/user/install-nccl-shared.sh
readonly LOG=$SLIPWAY_LOG_DIR/nccl.log
readonly OUTPUT=$SLIPWAY_LOG_DIR/nccl-install.log

nccl::nothing_to_do() { # REASON
  background::status nccl 'done' "$1" "$LOG"
  exit 0
}

# A failure becomes the state: the last message and the hint of log::die.
nccl::install() { # ARGUMENT ...
  local status=0 message hint
  SLIPWAY_AGAIN='sudo systemctl restart slipway-nccl' "$INSTALL" "$@" 2>&1 | tee "$OUTPUT" || status=$?
  [ "$status" -ne 0 ] || return 0
  message=$(sed --quiet '/^slipway: background /d; s/^slipway: //p' "$OUTPUT" | tail --lines=1)
  hint=$(sed --quiet 's/^slipway-hint: //p' "$OUTPUT" | tail --lines=1)
  background::status nccl failed "$message" "$LOG" "$hint; then: sudo systemctl restart slipway-nccl"
  exit 1
}

nccl::shared() { # FSX
  local wanted mark=$1/nccl/.from_settings
  wanted="$(env::get NCCL_VERSION) $(env::get OFI_VERSION) $(env::get NCCL_GPU_ARCHS '')"
  if [ "$(cat "$mark" 2>/dev/null)" = "$wanted" ] && [ -e "$1/nccl/current/.complete" ]; then
    nccl::nothing_to_do "the settings' versions were installed; in use: $(cat "$1/nccl/.nccl_version")"
  fi
  nccl::install "$(env::get NCCL_VERSION)" "$(env::get OFI_VERSION)" "$1"
  printf '%s\n' "$wanted" | file::put - "$mark" 0644
}

nccl::main() {
  local fsx tests
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  [ -n "$(env::get NCCL_GPU_ARCHS '')" ] || nccl::nothing_to_do 'no queue has GPUs: nothing to build'
  if [ "$(env::get NCCL_SOURCE image)" = shared ]; then
    nccl::shared "$fsx"
    return 0
  fi
  [ "$(env::get ACCEPTANCE_SCENARIO all-reduce)" != none ] ||
    nccl::nothing_to_do 'acceptance is off: no nccl-tests are needed'
  tests=$("$SLIPWAY_BUNDLE/headnode/nccl/of_image.py")
  [ -z "$tests" ] || nccl::nothing_to_do "the image has nccl-tests: $tests"
  nccl::install --tests-only "$(env::get NCCL_VERSION)" "$(env::get OFI_VERSION)" "$fsx"
}

nccl::main
