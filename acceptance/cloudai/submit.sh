#!/bin/bash
# Submits the jobs of this scenario to Slurm. No process stays: Slurm itself holds the dependencies.
#   submit.sh [--resume]     --resume: go on after this script was killed
# needs: plan.tsv next to this file (number, test, iteration, step, script, dependencies of each job), sbatch, scontrol
# Jobs are held until all are submitted, so that no job ends before another one that depends on it exists.
# jobs.tsv has the ids when all are submitted, the file `released` exists when Slurm may start them.
# on failure, SIGTERM, SIGINT, SIGHUP: the jobs that were submitted are cancelled, also one whose id was not read
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
if [[ -e jobs.tsv && ${1:-} != --resume ]]; then
  echo "submit.sh: jobs.tsv exists: this scenario was submitted. Hint: write it to another folder" >&2
  exit 2
fi
exec 9>>.submit.lock
busy=0
flock --nonblock --conflict-exit-code 75 9 || busy=$? # another code: a file system without locks
if ((busy == 75)); then
  echo "submit.sh: another submit.sh works in this folder. Hint: wait for its end" >&2
  exit 2
fi
submitted=()
declare -A planned=()
while IFS=$'\t' read -r _ _ _ _ script _; do
  planned[$script]=1
done <plan.tsv
# ours: the ids of this scenario's jobs that Slurm has, by their scripts; also of one whose id was never read
ours() {
  local id script
  squeue --noheader --user="$(id -u)" --format='%A|%o' | while IFS='|' read -r id script; do
    [[ -z $script || -z ${planned[$script]:-} ]] || echo "$id"
  done
}
cancel() {
  local jobs
  trap '' TERM INT HUP
  mapfile -t jobs < <({ printf '%s\n' "${submitted[@]}" && ours; } | sed '/^$/d' | sort -un)
  if ((${#jobs[@]} > 0)); then
    echo "submit.sh: not all jobs were submitted; cancelling ${#jobs[@]}" >&2
    scancel "${jobs[@]}"
  fi
  [[ ! -e jobs.part.tsv ]] || mv -f jobs.part.tsv jobs.tsv
  mv -f jobs.tsv jobs-cancelled.tsv
}

if [[ ! -e jobs.tsv ]]; then
  if [[ ${1:-} == --resume ]]; then
    held=$(ours) || {
      echo "submit.sh: squeue does not answer, and a killed submit.sh may have left jobs. Hint: try scontrol ping" >&2
      exit 2
    }
    xargs --no-run-if-empty scancel <<<"$held"
    rm -f jobs.part.tsv
  fi
  if ! (set -o noclobber && : >jobs.part.tsv); then
    echo "submit.sh: jobs.part.tsv cannot be written here, or a submit.sh was killed. Hint: see the line above;" \
      "submit.sh --resume cancels what that one submitted, and begins anew" >&2
    exit 2
  fi
  ended=0
  trap 'ended=1' TERM INT HUP # taken after sbatch has answered, so that no job is lost
  trap cancel EXIT            # after a failure, Ctrl-C and SIGTERM too
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
    ((ended == 0)) || exit 130
    id=${id%%;*}
    id_of[$number]=$id
    submitted+=("$id")
    printf '%s\t%s\t%s\t%s\n' "$test" "$iteration" "$step" "$id" >>jobs.part.tsv
  done <plan.tsv
  mv jobs.part.tsv jobs.tsv
  if ((${#submitted[@]} > 0)); then
    scontrol release "$(
      IFS=,
      echo "${submitted[*]}"
    )"
  fi
  trap - EXIT TERM INT HUP
elif [[ ! -e released ]]; then
  while IFS=$'\t' read -r _ _ _ id; do
    submitted+=("$id")
    scontrol release "$id" || echo "submit.sh: job $id could not be released: has it ended?" >&2
  done <jobs.tsv
fi
: >released
echo "submitted: ${submitted[*]:-nothing new}"
