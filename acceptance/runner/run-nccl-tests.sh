#!/bin/bash
# run-nccl-tests.sh PROGRAM HOST_ROOT DIRECTORY... -- ARGUMENT...: starts one rank of nccl-tests inside a container.
#
#   PROGRAM    all_reduce_perf and the like; taken from the first DIRECTORY that has it, or PROGRAM_mpi, with all of its
#              libraries, else from the PATH
#   HOST_ROOT  device and inode of the host's root directory: where this one is the same, there is no container around it
#
# On failure: exit 127 (not found) or 125 (no container), said by the first rank only.
set -euo pipefail

program=$1 host_root=$2
shift 2
directories=()
while [[ $1 != -- ]]; do
  directories+=("$1")
  shift
done
shift

say() {
  [[ ${SLURM_PROCID:-0} != 0 ]] || printf 'acceptance: %s\n' "$1"
}

if [[ $(stat -c %d:%i /) == "$host_root" ]]; then
  say "the container option was ignored on $(hostname): this runs on the host itself. Hint: is pyxis in plugstack.conf of the compute nodes?"
  exit 125
fi
# NGC's images have both names, and only the one that ends with _mpi joins several ranks.
candidates=()
for directory in "${directories[@]}"; do candidates+=("$directory/${program}_mpi" "$directory/$program"); done
lacking=''
for found in "${candidates[@]}" "$(command -v "${program}_mpi" || true)" "$(command -v "$program" || true)"; do
  [[ -n $found && -x $found ]] || continue
  missing=$(ldd "$found" 2>/dev/null | sed --quiet 's/[[:space:]]*=> not found.*//p' || true)
  if [[ -z $missing ]]; then
    # ACCEPTANCE_JSON: where the job wants the program's JSON, which nccl-tests 2.17.3 and newer write.
    if [[ -n ${ACCEPTANCE_JSON:-} ]] && grep --quiet --text --fixed-strings -e '-J,--output_file' "$found"; then
      set -- "$@" -J "$ACCEPTANCE_JSON"
    fi
    exec "$found" "$@"
  fi
  lacking+="; $found lacks $(printf '%s' "$missing" | xargs)"
done
say "no $program in the container on $(hostname); looked in: ${directories[*]} and the PATH$lacking. Hint: take an image with nccl-tests, or name their directory in the scenario's nccl_tests_paths"
exit 127
