#!/bin/bash
# apply-nccl-to-running-nodes.sh [NODES]: makes the nodes that are up use the NCCL on the shared file system.
#
#   NODES  some nodes, as Slurm writes them: train-st-gpu-[1-4]  (default: all)
#
# Runs compute/steps/30-nccl.sh on each node, many at once: by ssh with sudo, or, where ssh does not get in, as a short
# Slurm job. New shells and new jobs have it from then on, also after a reboot; a shell that is open sources
# /etc/profile.d/nccl-shared.sh itself. One line a node: ok, off (it finds NCCL when it starts), later (it is starting),
# or FAILED with the reason.
#
# needs:       sinfo; ssh between the nodes with sudo, or the right to run jobs as root
# permission:  the cluster's default user, or root
# how often:   once after install-nccl-shared.sh, if nodes were up then; safe to run again
# on failure:  goes on with the other nodes; exit 1, with one line for each node that failed
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source /opt/slipway/current/nodes/lib/all.sh

readonly STEP=/opt/slipway/current/compute/steps/30-nccl.sh
readonly NODE_TIMEOUT_S=60
readonly ASK_TIMEOUT_S=20
readonly AT_ONCE=16
readonly CFNCONFIG=/etc/parallelcluster/cfnconfig
SUDO=() AS_USER=() WORK=''

# Root has no key for the other nodes, the cluster's user has: ssh runs as that user, on the node with sudo.
apply::identity() {
  local user
  SUDO=(sudo -n)
  [ "$(id -u)" -eq 0 ] || return 0
  user=$(sed --quiet 's/^cfn_cluster_user=//p' "$CFNCONFIG" 2>/dev/null || true)
  if [ -n "$user" ] && id "$user" >/dev/null 2>&1; then
    AS_USER=(runuser -u "$user" --)
  else
    SUDO=()
  fi
}

apply::by_ssh() { # NODE
  command -v ssh >/dev/null || return 1
  timeout "$NODE_TIMEOUT_S" ${AS_USER[@]+"${AS_USER[@]}"} ssh -o BatchMode=yes -o ConnectTimeout=5 \
    -o StrictHostKeyChecking=accept-new "$1" ${SUDO[@]+"${SUDO[@]}"} "$STEP" </dev/null
}

apply::by_slurm() { # NODE
  local -a sudo=(sudo -n)
  [ "$(id -u)" -ne 0 ] || sudo=()
  timeout "$NODE_TIMEOUT_S" srun --quiet --nodelist="$1" --nodes=1 --ntasks=1 --immediate="$ASK_TIMEOUT_S" --chdir=/ \
    ${sudo[@]+"${sudo[@]}"} "$STEP" </dev/null
}

apply::result() { # NODE WORD TEXT
  printf '%-7s %s%s\n' "$2" "$1" "${3:+: $3}" >"$WORK/$1.result"
}

# Marks behind a state: ~ powered off, % powering down, ! to be powered down, # powering up, * does not respond.
apply::one() { # NODE STATE: leaves its result in WORK
  local log=$WORK/$1.log
  case $2 in
    *[~%]) apply::result "$1" off 'powered down; it finds NCCL when it starts' ;;
    *\* | down | future) apply::result "$1" off "$2; it finds NCCL when its set-up runs again" ;;
    *)
      if apply::by_ssh "$1" >"$log" 2>&1; then
        apply::result "$1" ok 'by ssh'
      elif [[ $2 == *'#' ]]; then
        apply::result "$1" later 'it is starting; run this again when it is up'
      elif apply::by_slurm "$1" >>"$log" 2>&1; then
        apply::result "$1" ok 'by a job'
      else
        apply::result "$1" FAILED "$2; $(tail --lines=1 "$log")"
      fi
      ;;
  esac
}

apply::main() { # [NODES]
  local fsx node state running=0
  local -a ask=(sinfo --noheader --Node '--format=%N %T') nodes=()
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  [ -f "$fsx/nccl/setup-nccl-env.sh" ] ||
    log::die "there is no NCCL in $fsx/nccl" "install it first: sudo bash $fsx/nccl/install-nccl-shared.sh"
  [ "$#" -eq 0 ] || ask+=("--nodes=$1")
  mapfile -t nodes < <(timeout "$ASK_TIMEOUT_S" "${ask[@]}" | sort --unique)
  [ "${#nodes[@]}" -gt 0 ] ||
    log::die 'Slurm knows no such node, or does not answer' "see 'sinfo'; nodes that start later need nothing"
  apply::identity
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  for node in "${nodes[@]}"; do
    read -r node state <<<"$node"
    apply::one "$node" "$state" &
    running=$((running + 1))
    if [ "$running" -ge "$AT_ONCE" ]; then
      wait -n || true
      running=$((running - 1))
    fi
  done
  wait
  cat "$WORK"/*.result
  ! grep --quiet --no-messages '^FAILED' "$WORK"/*.result ||
    log::die "not every node uses the NCCL in $fsx/nccl" \
      "repair the nodes above, or let them be replaced, and run this again"
}

apply::main "$@"
