#!/bin/bash
# run-nccl-tests.sh PROGRAM HOST_ROOT DIRECTORY... -- ARGUMENT...: starts one rank of nccl-tests inside a container.
#
#   PROGRAM    all_reduce_perf and the like; taken from the first DIRECTORY that has it, else from the PATH
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
for directory in "${directories[@]}"; do
  if [[ -x $directory/$program ]]; then exec "$directory/$program" "$@"; fi
done
if found=$(command -v "$program"); then exec "$found" "$@"; fi
say "no $program in the container on $(hostname); looked in: ${directories[*]} and the PATH. Hint: take an image with nccl-tests, or name their directory in the scenario's nccl_tests_paths"
exit 127
