#!/bin/bash
# Submits the jobs of this scenario to Slurm. No process stays: Slurm itself holds the dependencies.
# needs: plan.tsv next to this file (number, test, iteration, step, script, dependencies of each job), sbatch, scontrol
# Jobs are held until all are submitted, so that no job ends before another one that depends on it exists.
# on failure: the jobs that were submitted are cancelled
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
if [[ -e jobs.tsv ]]; then
  echo "submit.sh: jobs.tsv exists: this scenario was submitted. Hint: write it to another folder" >&2
  exit 2
fi
submitted=()
cancel() {
  if ((${#submitted[@]} > 0)); then
    echo "submit.sh: not all jobs were submitted; cancelling ${#submitted[@]}" >&2
    scancel "${submitted[@]}"
  fi
  mv -f jobs.tsv jobs-cancelled.tsv
}
if ! (set -o noclobber && : >jobs.tsv); then
  echo "submit.sh: jobs.tsv cannot be written here, or another submit.sh runs. Hint: see the line above" >&2
  exit 2
fi
trap cancel EXIT # after a failure, Ctrl-C and SIGTERM too
declare -A id_of
while IFS=$'\t' read -r number test iteration step script needs; do
  options=(--parsable --hold)
  if [[ $needs != - ]]; then
    spec=
    IFS=, read -ra parts <<<"$needs"
    for part in "${parts[@]}"; do
      spec+=",${part%%:*}:${id_of[${part#*:}]}"
    done
    options+=("--dependency=${spec#,}")
  fi
  id=$(sbatch "${options[@]}" "$script" </dev/null)
  id=${id%%;*}
  id_of[$number]=$id
  submitted+=("$id")
  printf '%s\t%s\t%s\t%s\n' "$test" "$iteration" "$step" "$id" >>jobs.tsv
done <plan.tsv
scontrol release "$(
  IFS=,
  echo "${submitted[*]}"
)"
trap - EXIT
echo "submitted: ${submitted[*]}"
