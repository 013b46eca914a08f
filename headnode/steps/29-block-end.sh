#!/bin/bash
# Starts the timer that announces the end of capacity blocks to users and holds jobs that could not finish.
# needs: python3, the AWS CLI, ec2:DescribeCapacityReservations (ParallelCluster grants it); Slurm may still be starting
# permission: root
# how often: once a head node; safe to run again
# on failure: report
# timeout: 60 s
# takes: about 0.3 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

readonly UNITS=/etc/systemd/system SERVICE=slipway-block-end.service TIMER=slipway-block-end.timer

# The unit runs also where the settings name no block any more: it then deletes the reservation of the block before.
block_end::main() {
  local file
  file::put - /etc/profile.d/slipway-block-end.sh 0644 <<'PROFILE'
# Written by Slipway: interactive shells print which capacity block ends within a day.
case $- in *i*) [ ! -s /run/slipway/block-end ] || cat /run/slipway/block-end ;; esac
PROFILE
  for file in "$SERVICE" "$TIMER"; do
    file::put "$SLIPWAY_BUNDLE/headnode/units/$file" "$UNITS/$file" 0644
  done
  unit::ensure "$TIMER" "$UNITS/$TIMER" "$UNITS/$SERVICE"
}

block_end::main
