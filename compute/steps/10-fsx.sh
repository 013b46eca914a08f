#!/bin/bash
# Checks that the shared file system is mounted and answers.
# needs: FSx mounted at FSX_MOUNT by ParallelCluster
# permission: root
# how often: once a node; changes nothing
# on failure: stop
# timeout: 90 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../bootstrap/common.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../bootstrap/common.sh"

readonly MOUNT_TIMEOUT_S=60

fsx::main() {
  local fsx end=$((SECONDS + MOUNT_TIMEOUT_S))
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  until mountpoint --quiet "$fsx"; do
    [ "$SECONDS" -lt "$end" ] ||
      log::die "$fsx is not mounted after $MOUNT_TIMEOUT_S s" "see 'grep $fsx /etc/fstab', 'sudo mount -a', and the security group's rules for Lustre"
    sleep 1
  done
  ls "$fsx" >/dev/null || log::die "$fsx is mounted, but cannot be read" "see 'dmesg | grep -i lustre' on this node"
}

fsx::main
