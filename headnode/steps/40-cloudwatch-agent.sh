#!/bin/bash
# Writes what the CloudWatch agent collects for us, and tells the agent where it is there.
# needs: python3; the agent is optional
# permission: root
# how often: once a node; safe to run again: the agent is told only when the file changed
# on failure: report
# timeout: 120 s
# takes: about 0.2 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/common.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/common.sh"
# shellcheck source-path=SCRIPTDIR source=../../nodes/cloudwatch-agent.sh
source "$SLIPWAY_BUNDLE/nodes/cloudwatch-agent.sh"

cloudwatch::main headnode
