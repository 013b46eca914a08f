#!/bin/bash
# Says in clustermgtd's configuration whether ParallelCluster replaces drained nodes (health.terminate_drained_nodes).
# needs: python3, parallelcluster_clustermgtd.conf, which ParallelCluster writes before the custom actions
# permission: root
# how often: once a head node; safe to run again: clustermgtd reads its configuration anew every minute
# on failure: report
# timeout: 30 s
# takes: about 0.1 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

readonly CONF=/etc/parallelcluster/slurm_plugin/parallelcluster_clustermgtd.conf

drained_nodes::main() {
  env::load "$SLIPWAY_NODE_ENV"
  /usr/bin/python3 -B "$SLIPWAY_BUNDLE/headnode/drained-nodes.py" "$CONF" "$(env::get HEALTH_REPLACED true)"
}

drained_nodes::main
