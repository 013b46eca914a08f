#!/bin/bash
# metadata.sh FOLDER: writes FOLDER/node-HOST.toml, what this node is, with CloudAI's keys; "null" if it is not known.
# On failure: FOLDER/nodes.err has the messages; the job goes on.
set -uo pipefail

mkdir -p "$1"
exec 2>>"$1/nodes.err"
host=${SLURMD_NODENAME:-$(uname -n)}

# value TEXT: one line as a TOML string
value() {
  local text=${1%%$'\n'*}
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  printf '"%s"' "${text:-null}"
}
# first FIELD: the value of `FIELD: VALUE` on standard input
first() { sed -n "s/^ *$1 *: *//p" | head -n 1; }
# ask COMMAND ARGUMENT...: what a command prints, nothing if it does not exist
ask() { if command -v "$1" >/dev/null; then "$@" 2>/dev/null || true; fi; }

# shellcheck source=/dev/null
[[ ! -r /etc/os-release ]] || . /etc/os-release
smi=$(ask nvidia-smi)
cpu=$(ask lscpu)
hpcx=${HPCX_DIR:-}
{
  printf 'user = %s\n' "$(value "${USER:-$(id -un)}")"
  printf '\n[system]\nos_type = %s\nos_version = %s\n' "$(value "${ID:-}")" "$(value "${VERSION:-}")"
  printf 'linux_kernel_version = %s\n' "$(value "$(uname -r)")"
  printf 'gpu_arch_type = %s\n' "$(value "$(ask nvidia-smi --query-gpu=name --format=csv,noheader)")"
  printf 'cpu_model_name = %s\n' "$(value "$(first 'Model name' <<<"$cpu")")"
  printf 'cpu_arch_type = %s\n' "$(value "$(first Architecture <<<"$cpu")")"
  printf '\n[mpi]\nompi_version = %s\n' "$(value "$(ask mpirun --version | sed -n 's/.*(Open MPI) //p')")"
  printf 'hpcx_version = %s\n' "$(value "${hpcx##*/}")"
  printf '\n[cuda]\ncuda_build_version = %s\n' "$(value "${CUDA_BUILD_VERSION:-}")"
  printf 'cuda_runtime_version = %s\n' "$(value "$(sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p' <<<"$smi")")"
  printf 'cuda_driver_version = %s\n' "$(value "$(sed -n 's/.*Driver Version: *\([0-9.]*\).*/\1/p' <<<"$smi")")"
  printf '\n[network]\nnics = %s\n' "$(value "$(ask lspci | sed -n 's/.*\(Ethernet\|Infiniband\) controller: //p')")"
  printf 'switch_type = %s\nnetwork_name = %s\n' "$(value "${SWITCH:-}")" "$(value "${NETWORK:-}")"
  printf 'mofed_version = %s\n' "$(value "$(ask ofed_info -s)")"
  printf 'libfabric_version = %s\n' "$(value "$(ask fi_info --version | first libfabric)")"
  printf '\n[nccl]\nversion = %s\n' "$(value "${NCCL_VERSION:-}")"
  printf 'commit_sha = %s\n' "$(value "${NCCL_COMMIT_SHA:-}")"
  printf '\n[slurm]\ncluster_name = %s\n' "$(value "${SLURM_CLUSTER_NAME:-}")"
  printf 'node_list = %s\nnum_nodes = %s\n' "$(value "${SLURM_JOB_NODELIST:-}")" "$(value "${SLURM_JOB_NUM_NODES:-}")"
  printf 'ntasks_per_node = %s\n' "$(value "${SLURM_NTASKS_PER_NODE:-}")"
  printf 'ntasks = %s\njob_id = %s\n' "$(value "${SLURM_NTASKS:-}")" "$(value "${SLURM_JOB_ID:-}")"
} >"$1/node-$host.toml"
