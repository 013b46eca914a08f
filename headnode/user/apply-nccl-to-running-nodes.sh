#!/bin/bash
# apply-nccl-to-running-nodes.sh: makes the nodes that are up use the NCCL on the shared file system.
#
# Runs compute/steps/30-nccl.sh on each node: by ssh with sudo, or, where ssh does not get in, as a short Slurm job.
# New shells and new jobs have it from then on, also after a reboot; a shell that is open sources
# /etc/profile.d/nccl-shared.sh itself.
#
# needs:       sinfo; ssh between the nodes with sudo, or the right to run jobs as root
# permission:  the cluster's default user, or root
# how often:   once after install-nccl-shared.sh, if nodes were up then; safe to run again
# on failure:  goes on with the other nodes; exit 1, with one line for each node that failed
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../bootstrap/common.sh
source /opt/slipway/current/bootstrap/common.sh

readonly STEP=/opt/slipway/current/compute/steps/30-nccl.sh
readonly NODE_TIMEOUT_S=60
readonly AT_ONCE=16

apply::nodes() { # prints the names of the nodes that are up, one a line
  local name state
  timeout 20 sinfo --noheader --Node --format='%N %T' | sort --unique | while read -r name state; do
    # Marks: powered off, powering down, powering up, does not respond.
    case $state in
      *[~%#\*] | down | future) ;;
      *) printf '%s\n' "$name" ;;
    esac
  done
}

apply::by_ssh() { # NODE
  local -a as_root=(sudo -n)
  command -v ssh >/dev/null || return 1
  [ "$(id -u)" -ne 0 ] || as_root=()
  timeout "$NODE_TIMEOUT_S" ssh -o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=accept-new "$1" \
    ${as_root[@]+"${as_root[@]}"} "$STEP" </dev/null
}

apply::by_slurm() { # NODE
  local -a as_root=(sudo -n)
  [ "$(id -u)" -ne 0 ] || as_root=()
  timeout "$NODE_TIMEOUT_S" srun --quiet --nodelist="$1" --nodes=1 --ntasks=1 --immediate=20 --chdir=/ \
    ${as_root[@]+"${as_root[@]}"} "$STEP" </dev/null
}

apply::one() { # NODE: leaves its result in WORK
  if apply::by_ssh "$1" >"$WORK/$1.log" 2>&1 || apply::by_slurm "$1" >>"$WORK/$1.log" 2>&1; then
    printf 'ok      %s\n' "$1" >"$WORK/$1.result"
  else
    printf 'FAILED  %s: %s\n' "$1" "$(tail --lines=1 "$WORK/$1.log")" >"$WORK/$1.result"
  fi
}

apply::main() {
  local fsx node running=0
  local -a nodes=()
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  [ -f "$fsx/nccl/setup-nccl-env.sh" ] ||
    log::die "there is no NCCL in $fsx/nccl" "install it first: sudo bash $fsx/nccl/install-nccl-shared.sh"
  mapfile -t nodes < <(apply::nodes)
  [ "${#nodes[@]}" -gt 0 ] || log::die "Slurm knows no node that is up" "see 'sinfo'; nodes that start later need nothing"
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  for node in "${nodes[@]}"; do
    apply::one "$node" &
    running=$((running + 1))
    if [ "$running" -ge "$AT_ONCE" ]; then
      wait -n || true
      running=$((running - 1))
    fi
  done
  wait
  cat "$WORK"/*.result
  ! grep --quiet --no-messages '^FAILED' "$WORK"/*.result ||
    log::die "not every node uses the NCCL in $fsx/nccl" "repair the nodes above, or let them be replaced, and run this again"
}

apply::main
