#!/bin/bash
# Reports an instance with NVMe disks on which /scratch, where ParallelCluster mounts them, is missing.
# needs: python3, instances.json of the bundle
# permission: root
# how often: once a node; changes nothing
# on failure: report
# timeout: 30 s
# takes: about 0.1 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/facts.sh
source "$SLIPWAY_BUNDLE/nodes/lib/facts.sh"

scratch::main() {
  local gigabytes
  gigabytes=$(facts::get nvme_gb)
  case $gigabytes in
    null) log::info "the instance type is not known: nothing to compare" ;;
    0) log::info "this instance type has no NVMe disks" ;;
    *)
      mountpoint --quiet /scratch ||
        log::die \
          "/scratch is not mounted, but this type has $gigabytes GB of NVMe: caches and images go to the root volume" \
          "run 'systemctl status setup-ephemeral' and 'lsblk' on this node"
      log::info "/scratch is mounted"
      ;;
  esac
}

scratch::main
