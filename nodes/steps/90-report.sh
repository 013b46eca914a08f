#!/bin/bash
# Puts the state of this node on the shared file system, where the head node reads it for `slipway status`.
# needs: FSx mounted at FSX_MOUNT, python3
# runs on: headnode compute
# permission: root
# how often: once a node, after all other steps; safe to run again
# on failure: report
# timeout: 30 s
# takes: about 0.1 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib/all.sh"

report::main() {
  "$SLIPWAY_BUNDLE/nodes/status/node_status.py" --share ||
    log::die "the state of this node could not be shared (see the lines above)" \
      "is the shared file system mounted, full or read-only? see 'df -h'"
}

report::main
