#!/bin/bash
# Cancels the jobs of tests of this scenario, or of all of them; never the job that calls it.
#   end-jobs.sh TEST...|--all
# needs: jobs.tsv next to this file (test, iteration, step and job id of each submitted job), scancel
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ids=()
while IFS=$'\t' read -r test _ _ id; do
  for wanted in "$@"; do
    if [[ ($wanted == --all || $wanted == "$test") && $id != "${SLURM_JOB_ID:-}" ]]; then
      ids+=("$id")
    fi
  done
done <"$here/jobs.tsv"
if ((${#ids[@]} > 0)); then
  mkdir -p "$here/ended"
  for id in "${ids[@]}"; do
    : >"$here/ended/$id" # so that its own end does not count as a failure
  done
  scancel "${ids[@]}"
fi
