#!/bin/bash
# Cancels the jobs of tests of this scenario, or of all of them; never the job that calls it.
#   end-jobs.sh TEST...|--all
# needs: jobs.tsv next to this file (test, iteration, step and job id of each submitted job), scancel
# ended/JOB notes why: end_post_comp or job_status_check, and the job that called. Such an end is no failure.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ids=()
why=end_post_comp
while IFS=$'\t' read -r test _ _ id; do
  for wanted in "$@"; do
    [[ $wanted != --all ]] || why=job_status_check
    if [[ ($wanted == --all || $wanted == "$test") && $id != "${SLURM_JOB_ID:-}" ]]; then
      ids=("$id" "${ids[@]}") # the last one first: a job that waits for another one's end would begin
    fi
  done
done <"$here/jobs.tsv"
if ((${#ids[@]} > 0)); then
  mkdir -p "$here/ended"
  for id in "${ids[@]}"; do
    [[ -e $here/ended/$id ]] || echo "$why ${SLURM_JOB_ID:-}" >"$here/ended/$id"
  done
  scancel "${ids[@]}"
fi
