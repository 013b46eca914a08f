#!/bin/bash
# job-begin.sh: makes the directories of enroot that are the user's alone, before a job of that user begins here.
# needs: SLURM_JOB_UID and SLURM_JOB_GID as Slurm's Prolog has them; step 35-container-runtime
# permission: root
# how often: by Slurm's Prolog, at the first step of each job on each node; safe to run again
# on failure: exit 1, which the Prolog of Slipway ignores: a Prolog that fails would drain the node
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../nodes/lib/all.sh"
# shellcheck source-path=SCRIPTDIR source=job-places.sh
source "$SLIPWAY_BUNDLE/compute/job-places.sh"

job_begin::main() {
  local storage group
  storage=$(job::storage)
  [ -n "$storage" ] || return 0
  group=${SLURM_JOB_GID:-$(id -g "$SLURM_JOB_UID")}
  file::private "/run/enroot/user-$SLURM_JOB_UID" "$SLURM_JOB_UID:$group"
  file::private "$storage/enroot-user-$SLURM_JOB_UID" "$SLURM_JOB_UID:$group"
}

job_begin::main
