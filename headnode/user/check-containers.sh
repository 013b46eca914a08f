#!/bin/bash
# check-containers.sh [--partition P] [--nodes N] IMAGE: does `srun --container-image` run inside the image, on N nodes?
#
#   IMAGE  a .sqsh file such as /fsx/containers/nvcr.io_nvidia_pytorch-24.01-py3.sqsh
#
#   Where pyxis is not loaded, Slurm runs the job on the node itself and reports no error. So each node is asked for the
#   identity of its root directory, once outside the image and once inside, and the two must differ. On nodes with GPUs
#   each job asks for one GPU, and `nvidia-smi -L` in the image must list it.
#
# needs:       Slurm, pyxis; a shell and stat in the image
# permission:  any user who may submit jobs
# how often:   at any time, such as after an update of Slurm; it changes nothing
# on failure:  exit 1, with one line for each node on which a job would not run in its image; 2 for wrong use
set -euo pipefail

readonly QUEUE_S=${CHECK_CONTAINERS_QUEUE_S:-120}
readonly RUN_S=600
readonly USAGE='check-containers.sh [--partition P] [--nodes N] IMAGE'
# For the shells of the nodes: not expanded here.
# shellcheck disable=SC2016
readonly ASK='. /etc/os-release 2>/dev/null
gpus=$(nvidia-smi -L 2>/dev/null | (n=0; while read -r word _; do [ "$word" != GPU ] || n=$((n + 1)); done; echo "$n"))
echo "$SLURMD_NODENAME $(stat -c %d:%i /) $gpus ${PRETTY_NAME:-${ID:-unknown}}"'

check::die() { # MESSAGE HINT [EXIT]
  printf 'slipway: %s\nslipway-hint: %s\n' "$1" "$2" >&2
  exit "${3:-1}"
}

# 0 when all nodes of the partition, or of the default one, have GPUs.
check::gpus() { # [PARTITION]
  local name gres found=1
  while read -r name gres; do
    [ "${name%\*}" = "${1-}" ] || { [ -z "${1-}" ] && [[ $name == *\* ]]; } || continue
    [[ $gres == *gpu* ]] || return 1
    found=0
  done < <(sinfo --noheader --format='%P %G')
  return "$found"
}

# One line a node: its name, its root directory's device and inode, its GPUs, what it calls itself.
check::ask() { # SRUN_ARGUMENT ...
  timeout --kill-after=10 "$RUN_S" srun --job-name=check-containers --immediate="$QUEUE_S" --time=10 \
    --ntasks-per-node=1 "$@" sh -c "$ASK"
}

check::compare() { # OUTSIDE INSIDE GPUS: prints a line for each node; fails when one is not in the image or has no GPU
  local node root gpus name outside failed=0
  while read -r node root gpus name; do
    outside=$(awk -v node="$node" '$1 == node { print $2 }' <<<"$1")
    if [ -n "$outside" ] && [ "$root" != "$outside" ] && [ "$gpus" -ge "$3" ]; then
      printf 'ok      %s: inside the image (%s)%s\n' "$node" "$name" "$([ "$3" -eq 0 ] || printf ', GPUs: %s' "$gpus")"
    elif [ -n "$outside" ] && [ "$root" != "$outside" ]; then
      printf 'FAILED  %s: nvidia-smi in the image (%s) lists no GPU: see 16-gpu-containers.log there\n' "$node" "$name"
      failed=1
    else
      printf 'FAILED  %s: the job ran on the node itself (%s): pyxis is not loaded there\n' "$node" "$name"
      failed=1
    fi
  done <<<"$2"
  return "$failed"
}

check::main() {
  local arguments=() nodes=1 partition='' gpus=0 options outside inside
  while [[ ${1-} == --* ]]; do
    [ "$1" != --help ] || { printf '%s\n' "$USAGE" && return; }
    [ -n "${2-}" ] || check::die "$1 without a value" "$USAGE" 2
    case $1 in
      --partition)
        partition=$2
        arguments+=("--partition=$2")
        ;;
      --nodes) nodes=$2 ;;
      *) check::die "unknown option $1" "$USAGE" 2 ;;
    esac
    shift 2
  done
  [ "$#" -eq 1 ] || check::die "one image is needed" "$USAGE" 2
  [ -f "$1" ] || check::die "$1 is not there" "see /fsx/containers/list-containers.sh" 2
  [[ $nodes =~ ^[1-9][0-9]{0,4}$ ]] || check::die "--nodes $nodes: not a number of nodes" "such as --nodes 2" 2
  arguments+=("--nodes=$nodes")
  options=$(srun --help)
  [[ $options == *--container-image* ]] ||
    check::die "srun does not know --container-image: pyxis is off on this node" \
      "set containers.pyxis: true; see $0 and /var/log/slipway/35-container-runtime.log"
  if check::gpus "$partition"; then
    gpus=1
    arguments+=("--gres=gpu:1")
    # NVIDIA's images set both themselves; with them in the job's environment other images get the GPUs too.
    export NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
  fi
  outside=$(check::ask "${arguments[@]}") ||
    check::die "no job ran within $QUEUE_S s, not even without an image" "see sinfo and squeue"
  # The same nodes again, so that each is compared with itself.
  arguments+=("--nodelist=$(cut --delimiter=' ' --fields=1 <<<"$outside" | paste --serial --delimiters=,)")
  inside=$(check::ask "${arguments[@]}" "--container-image=$1") || inside=''
  # Slurm 22.05 answers 0 also for a task that could not be started.
  [ "$(wc --lines <<<"$inside")" -eq "$(wc --lines <<<"$outside")" ] && [ -n "$inside" ] ||
    check::die "a job in $1 did not start on every node: see the lines above" "see /var/log/slurmd.log on the node; \
if nvidia-container-cli is missing: /var/log/slipway/16-gpu-containers.log there"
  check::compare "$outside" "$inside" "$gpus" ||
    check::die "jobs with --container-image do not run in it on the nodes above, or have no GPU in it" \
      "run 'sudo scontrol reconfigure' on the head node and check again; then: does such a node have \
/opt/slurm/etc/plugstack.conf?"
}

check::main "$@"
