#!/bin/bash
# Makes the directories of the shared file system.
# needs: FSx mounted at FSX_MOUNT, python3
# permission: root
# how often: once a head node; safe to run again: existing directories are kept, and those that FSx made opened to users
# on failure: stop
# timeout: 60 s
# takes: about 0.1 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

layout::main() {
  local fsx written
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  mountpoint --quiet "$fsx" ||
    log::die "$fsx is not mounted" \
      "see 'grep $fsx /etc/fstab', then 'sudo mount -a', and the file system's state in the FSx console"
  # It reports every conflict at once, with a hint.
  # The folders of associations that copy changes to the bucket: users write there.
  IFS=' ' read -r -a written <<<"$(env::get FSX_WRITTEN '')"
  python3 -B "$SLIPWAY_BUNDLE/headnode/fsx-layout.py" "$fsx" ${written[@]+"${written[@]}"}
}

layout::main
