#!/bin/bash
# Turns persistence mode on, and starts the fabric manager where the GPUs are joined by NVSwitches.
# needs: nvidia-smi on nodes with GPUs, nvidia-fabricmanager where there are NVSwitches
# permission: root
# how often: once a node; safe to run again: what is on stays as it is
# on failure: report
# timeout: 130 s
# takes: about 0.8 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/facts.sh
source "$SLIPWAY_BUNDLE/nodes/lib/facts.sh"

readonly SMI_TIMEOUT_S=20
readonly FABRIC_TIMEOUT_S=60
readonly FABRIC=nvidia-fabricmanager.service

gpu_state::smi() { # ARGUMENT ...
  timeout --kill-after=5 "$SMI_TIMEOUT_S" nvidia-smi "$@"
}

# 0 when every GPU has persistence mode on.
gpu_state::persistent() {
  local modes
  modes=$(gpu_state::smi --query-gpu=persistence_mode --format=csv,noheader) ||
    log::die "nvidia-smi does not report the GPUs' persistence mode: $modes" \
      "run 'nvidia-smi' and 'dmesg | grep NVRM' on this node"
  [[ -n $modes && $modes != *Disabled* ]]
}

# ParallelCluster starts nvidia-persistenced itself; where it did not, the mode is set without starting that daemon:
# two of them disturb each other (aws-parallelcluster issue 5448).
gpu_state::persistence() {
  if gpu_state::persistent; then
    log::info "persistence mode is on"
    return 0
  fi
  gpu_state::smi -pm 1 || log::die "cannot turn persistence mode on" "run 'nvidia-smi -pm 1' as root on this node"
  gpu_state::persistent || log::die "persistence mode is still off" "run 'nvidia-smi -q -d PERFORMANCE' on this node"
  log::info "turned persistence mode on"
}

gpu_state::fabric() {
  local switches
  switches=$(facts::get nvswitch)
  if [ "$switches" != true ]; then
    log::info "no NVSwitches known on this node: no fabric manager needed"
    return 0
  fi
  systemctl cat "$FABRIC" >/dev/null 2>&1 ||
    log::die "this node has NVSwitches, but no $FABRIC: its GPUs cannot talk over NVLink" \
      "install nvidia-fabricmanager of the driver's own version into the image"
  if ! systemctl is-active --quiet "$FABRIC"; then
    timeout --kill-after=5 "$FABRIC_TIMEOUT_S" systemctl start "$FABRIC" || unit::fail "$FABRIC" "did not start"
    log::info "started $FABRIC"
  fi
  systemctl is-enabled --quiet "$FABRIC" || systemctl enable --quiet "$FABRIC"
}

gpu_state::main() {
  if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
    log::info "no GPU on this node"
    return 0
  fi
  command -v nvidia-smi >/dev/null ||
    log::die "this node has GPUs, but no nvidia-smi" "the image lacks the driver's tools: take one of ParallelCluster's"
  gpu_state::persistence
  gpu_state::fabric
}

gpu_state::main
