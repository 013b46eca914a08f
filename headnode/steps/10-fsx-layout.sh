#!/bin/bash
# Makes the directories of the shared file system.
# needs: FSx mounted at FSX_MOUNT
# permission: root
# how often: once a head node; safe to run again: what is there keeps its content, owner and mode
# on failure: stop
# timeout: 60 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../bootstrap/common.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../bootstrap/common.sh"

# Directories that several users write to are sticky (1777): everyone adds, nobody removes what is another user's.
readonly DIRECTORIES=(
  '1777 containers'         # images (.sqsh); users may add their own
  '1777 containers/runtime' # enroot's, one directory a user below each
  '1777 containers/cache'
  '1777 containers/data'
  '0755 scripts'
  '0755 config'
  '0755 logs'
  '1777 logs/container-downloads'
  '1777 logs/slurm'
  '1777 logs/training'
  '0755 nccl'
  '1777 datasets'
  '1777 checkpoints'
  '1777 results'
)

layout::main() {
  local entry fsx
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  mountpoint --quiet "$fsx" ||
    log::die "$fsx is not mounted" "see 'grep $fsx /etc/fstab', then 'sudo mount -a', and the file system's state in the FSx console"
  for entry in "${DIRECTORIES[@]}"; do
    file::directory "$fsx/${entry#* }" "${entry%% *}"
  done
}

layout::main
