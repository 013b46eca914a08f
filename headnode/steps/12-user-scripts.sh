#!/bin/bash
# Puts the scripts that users run, and the list of container images, on the shared file system.
# needs: the directories of 10-fsx-layout
# permission: root
# how often: once a head node; safe to run again: an edited containers.txt is kept
# on failure: stop
# timeout: 60 s
# takes: about 0.1 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

readonly USER_SCRIPTS="$SLIPWAY_BUNDLE/headnode/user"

# containers.txt belongs to the site, which edits it with sudo. It is replaced only while it is as a release wrote
# it; .containers.txt.shipped is a copy of that, on the shared file system because it may outlive this head node.
scripts::containers_list() { # CONFIG_DIRECTORY
  local list=$1/containers.txt shipped=$1/.containers.txt.shipped new=$SLIPWAY_BUNDLE/containers.txt
  if [ -f "$list" ] && ! cmp --silent "$list" "$shipped" && ! cmp --silent "$list" "$new"; then
    log::info "$list was edited: kept"
    return 0
  fi
  file::put "$new" "$list" 0664
  file::put "$new" "$shipped" 0644
}

scripts::main() {
  local fsx
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  file::put "$USER_SCRIPTS/download-ngc-containers.sh" "$fsx/scripts/download-ngc-containers.sh" 0755
  file::put "$USER_SCRIPTS/check-containers.sh" "$fsx/scripts/check-containers.sh" 0755
  file::put "$USER_SCRIPTS/list-containers.sh" "$fsx/containers/list-containers.sh" 0755
  file::put "$USER_SCRIPTS/install-nccl-shared.sh" "$fsx/nccl/install-nccl-shared.sh" 0755
  file::put "$USER_SCRIPTS/apply-nccl-to-running-nodes.sh" "$fsx/nccl/apply-nccl-to-running-nodes.sh" 0755
  scripts::containers_list "$fsx/config"
}

scripts::main
