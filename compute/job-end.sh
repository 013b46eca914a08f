#!/bin/bash
# job-end.sh: removes what an ended job left on this node: its containers, and what its user's processes still hold.
# needs: SLURM_JOB_ID and SLURM_JOB_UID as Slurm's Epilog has them
# permission: root
# how often: by Slurm's Epilog, at the end of each job on each node; safe to run again
# on failure: exit 1, which the Epilog of Slipway ignores: an Epilog that fails would drain the node
#
# Always: the job's own unpacked containers (pyxis_JOB.STEP, with container_scope=job pyxis_JOB_NAME), pyxis' image of the job, /scratch/job-JOB.
# Only when the user has no other job here: processes of the user that hold a GPU (ended), containers and enroot's
# unfinished directories of the user's earlier jobs, and the user's files in /dev/shm if no process of the user is left.
# Never: anything else on /scratch, and named containers of all jobs (pyxis_NAME, with container_scope=global): users keep
# them on purpose.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../nodes/lib/all.sh"
# shellcheck source-path=SCRIPTDIR source=job-places.sh
source "$SLIPWAY_BUNDLE/compute/job-places.sh"

readonly SLURM_S=10 END_S=5

# 0 when Slurm says that the user has no other job here. No answer counts as another job: nothing of the user is ended.
job_end::last() {
  local jobs
  jobs=$(timeout --kill-after=2 "$SLURM_S" squeue --noheader --user="$SLURM_JOB_UID" --format=%A \
    --states=running,suspended,configuring,completing,stopped --nodelist="${SLURMD_NODENAME:-$(uname -n)}") || return 1
  ! grep --invert-match --line-regexp --fixed-strings "$SLURM_JOB_ID" <<<"$jobs" | grep --quiet .
}

# Processes of the user that have a GPU open.
job_end::gpu_processes() {
  local pid
  for pid in $(pgrep --uid "$SLURM_JOB_UID" || true); do
    ! find "/proc/$pid/fd" -lname '/dev/nvidia*' -print -quit 2>/dev/null | grep --quiet . || printf '%s\n' "$pid"
  done
}

job_end::processes() {
  local pids pid end=$((SECONDS + END_S))
  pids=$(job_end::gpu_processes)
  [ -n "$pids" ] || return 0
  for pid in $pids; do
    log::info "job $SLURM_JOB_ID left process $pid on the GPUs: $(tr '\0' ' ' <"/proc/$pid/cmdline" || true)"
  done
  # shellcheck disable=SC2086  # a list of numbers
  kill $pids 2>/dev/null || true
  while [ "$SECONDS" -lt "$end" ] && [ -n "$(job_end::gpu_processes)" ]; do sleep 0.2; done
  pids=$(job_end::gpu_processes)
  # shellcheck disable=SC2086
  [ -z "$pids" ] || kill -KILL $pids 2>/dev/null || true
}

# Removes what matches directly below a directory and belongs to the job's user; never follows a link out of it.
job_end::remove() { # DIRECTORY FIND_TEST ...
  [ -d "$1" ] || return 0
  find "$1" -mindepth 1 -maxdepth 1 -user "$SLURM_JOB_UID" "${@:2}" -printf 'slipway: removed %p\n' \
    -exec rm -rf --one-file-system {} + 2>/dev/null || true
}

job_end::main() {
  local storage own parts='\.[0-9]+'
  [[ ${SLURM_JOB_ID:-} =~ ^[0-9]+$ && ${SLURM_JOB_UID:-} =~ ^[0-9]+$ ]] ||
    log::die "SLURM_JOB_ID and SLURM_JOB_UID are missing" "Slurm's Epilog starts this script"
  storage=$(job::storage)
  own=$storage/enroot-user-$SLURM_JOB_UID/data
  # A name of all jobs, such as 2024_data, looks like pyxis_JOB_NAME: only where each job has its own names it is one.
  ! job::own_names || parts+='|_[^/]*'
  job_end::remove "$own" -regextype posix-extended -regex ".*/pyxis_$SLURM_JOB_ID($parts)"
  job_end::remove "/run/pyxis/$SLURM_JOB_UID" -name "$SLURM_JOB_ID.*"
  job_end::remove /scratch -name "job-$SLURM_JOB_ID"
  # Root's processes are the system's.
  if [ "$SLURM_JOB_UID" -eq 0 ] || ! job_end::last; then return 0; fi
  job_end::processes
  job_end::remove "$own" -regextype posix-extended -regex ".*/pyxis_[0-9]+($parts)"
  if ! pgrep --uid "$SLURM_JOB_UID" >/dev/null; then
    job_end::remove "$storage" -name 'enroot.??????????'
    job_end::remove /dev/shm
  fi
}

job_end::main
