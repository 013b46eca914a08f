#!/bin/bash
# Starts the timer that asks EC2 where the nodes are in the network, which acceptance takes for their switches.
# needs: python3, the AWS CLI, ec2:DescribeInstanceTopology and ec2:DescribeInstances; Slurm may still be starting
# permission: root
# how often: once a head node; safe to run again
# on failure: report
# timeout: 60 s
# takes: about 0.2 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

readonly UNITS=/etc/systemd/system SERVICE=slipway-topology.service TIMER=slipway-topology.timer

topology::main() {
  local file
  for file in "$SERVICE" "$TIMER"; do
    file::put "$SLIPWAY_BUNDLE/headnode/units/$file" "$UNITS/$file" 0644
  done
  unit::ensure "$TIMER" "$UNITS/$TIMER" "$UNITS/$SERVICE"
}

topology::main
