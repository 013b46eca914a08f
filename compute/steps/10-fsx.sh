#!/bin/bash
# Checks that the shared file system is mounted, answers, can be written to and has room.
# needs: FSx mounted at FSX_MOUNT by ParallelCluster
# permission: root
# how often: once a node; changes nothing
# on failure: stop
# timeout: 90 s
# takes: about 0.1 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

readonly ANSWER_TIMEOUT_S=20

# The mount options, from the kernel's table: it answers even when the file system hangs.
fsx::options() { # MOUNT_POINT
  local place options result=''
  while read -r _ place _ options _; do
    [ "$place" != "$1" ] || result=$options
  done </proc/self/mounts
  printf '%s' "$result"
}

fsx::wait_mounted() { # MOUNT_POINT
  local end wait_s
  wait_s=$(env::get_number FSX_MOUNT_WAIT_S 60)
  end=$((SECONDS + wait_s))
  until [ -n "$(fsx::options "$1")" ]; do
    [ "$SECONDS" -lt "$end" ] ||
      log::die "$1 is not mounted after $wait_s s" \
        "see 'grep $1 /etc/fstab', 'sudo mount -a', and the security group's rules for Lustre"
    sleep 1
  done
}

# A full file system is a warning, not a failure: data can be read and space freed.
fsx::room() { # MOUNT_POINT
  local blocks inodes
  read -r blocks inodes < <(timeout --kill-after=5 "$ANSWER_TIMEOUT_S" stat --file-system --format='%a %d' "$1")
  [ "$blocks" -ne 0 ] || log::warn "$1 is full: no block is free; jobs cannot write. See 'lfs df -h $1'"
  [ "$inodes" -ne 0 ] || log::warn "$1 has no free inode: no file can be made. See 'lfs df -i $1'"
}

fsx::main() {
  local fsx status=0
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  fsx::wait_mounted "$fsx"
  timeout --kill-after=5 "$ANSWER_TIMEOUT_S" ls "$fsx" >/dev/null || status=$?
  [ "$status" -ne 124 ] ||
    log::die "$fsx is mounted, but does not answer in $ANSWER_TIMEOUT_S s" \
      "see 'dmesg | grep -i lustre' on this node, and the file system's state in the FSx console"
  [ "$status" -eq 0 ] || log::die "$fsx is mounted, but cannot be read" "see 'dmesg | grep -i lustre' on this node"
  [[ ,$(fsx::options "$fsx"), != *,ro,* ]] ||
    log::die "$fsx is mounted read-only: no job could write its results" \
      "see 'dmesg | grep -i lustre', then 'sudo mount -o remount,rw $fsx'"
  fsx::room "$fsx"
}

fsx::main
