#!/bin/bash
# running-nodes.sh: updates the running compute nodes to the release of the head node, each when its jobs have ended.
#
# A node that starts later gets the release at its start. For a running node it submits a Slurm job that takes the whole
# node: the job waits for the running jobs, touches none of them, and runs before the waiting ones.
#
# needs:       Slurm; the nodes' states in FSX/logs/slipway/nodes (90-report.sh)
# permission:  root
# how often:   on the head node after each set-up (85-update-nodes.sh); safe to run again: one job a node
# on failure:  exit 1, and says for which nodes no job could be submitted
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib/all.sh"

readonly JOB=slipway-update
readonly JOB_LIMIT_MIN=30
readonly SLURM_TIMEOUT_S=20
# States of nodes that are up and take jobs sooner or later. With a suffix (~ off, % going off, # starting, * silent...)
# a node is not there, or takes the new release when it starts.
readonly UP='^(idle|mixed|allocated|completing|drained|draining|reserved|planned)$'

running::slurm() { # COMMAND [ARGUMENT ...]
  timeout --kill-after=5 "$SLURM_TIMEOUT_S" "$@"
}

# Sets PARTITIONS[node] for each node that is up.
running::nodes_up() {
  local listed name partition state
  declare -gA PARTITIONS=()
  listed=$(running::slurm sinfo --noheader --Node --format='%N %R %T') ||
    log::die "Slurm does not list the nodes that are up" "see 'systemctl status slurmctld', then run this again"
  while read -r name partition state; do
    [[ ! $state =~ $UP ]] || PARTITIONS[$name]=$partition
  done <<<"$listed"
}

# Sets WAITING[node] for each node that has its job already: root's, since any user may give a job that name.
running::jobs() {
  local listed wanted where
  declare -gA WAITING=()
  listed=$(running::slurm squeue --noheader --user=root --name="$JOB" --format='%n|%N') ||
    log::die "Slurm does not list the jobs" "see 'systemctl status slurmctld', then run this again"
  while IFS='|' read -r wanted where; do
    [ -z "$wanted$where" ] || WAITING[${where:-$wanted}]=yes
  done <<<"$listed"
}

running::release_of() { # NODE FSX: the first 12 digits, nothing where it is not known
  sed --quiet 's/.*"in_use": "\([0-9a-f]*\)".*/\1/p' "$2/logs/slipway/nodes/$1.json" 2>/dev/null || true
}

running::submit() { # NODE PARTITION FSX
  running::slurm sbatch --parsable --job-name="$JOB" --partition="$2" --nodelist="$1" --nodes=1 --exclusive \
    --time="$JOB_LIMIT_MIN" --priority=TOP --chdir=/ --output="$3/logs/slipway/update-$1.log" --open-mode=append \
    "$SLIPWAY_BUNDLE/nodes/update/this-node.sh" >/dev/null
}

running::main() {
  local fsx wanted node failed=()
  local -i submitted=0 old=0
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  wanted=$(basename "$(readlink -f /opt/slipway/current)")
  running::nodes_up
  running::jobs
  for node in "${!PARTITIONS[@]}"; do
    [ "$(running::release_of "$node" "$fsx")" != "$wanted" ] || continue
    old+=1
    [ -z "${WAITING[$node]:-}" ] || continue
    if running::submit "$node" "${PARTITIONS[$node]}" "$fsx"; then submitted+=1; else failed+=("$node"); fi
  done
  [ "${#failed[@]}" -eq 0 ] ||
    log::die "no job could be submitted for ${failed[*]}: they keep their release until they start anew" \
      "see 'scontrol show node', then run $SLIPWAY_BUNDLE/nodes/update/running-nodes.sh"
  log::info "${#PARTITIONS[@]} nodes are up, $old with another release than $wanted; submitted $submitted jobs $JOB"
}

running::main
