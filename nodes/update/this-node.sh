#!/bin/bash
# this-node.sh: takes the release that the cluster's parameter names; the Slurm job slipway-update on a compute node.
#
# needs:       the node's own bootstrap has run
# permission:  root
# how often:   by running-nodes.sh, when the head node has another release than this node; safe to run again
# on failure:  exit 1; the last release that was good is in use again (see use-bundle.sh)
set -euo pipefail
# Slurm runs a copy of this file: what it needs is in the release that this node has in use.
# shellcheck source-path=SCRIPTDIR source=../lib/all.sh
source /opt/slipway/current/nodes/lib/all.sh

env::load "$SLIPWAY_NODE_ENV"
exec /opt/slipway/current/nodes/load-bundle.sh compute "$(env::get REGION)" "/slipway/$(env::get CLUSTER_NAME)/bundle"
