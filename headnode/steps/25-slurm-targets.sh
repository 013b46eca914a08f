#!/bin/bash
# Starts the service that writes the nodes to scrape for Prometheus, from Slurm's list, every 3 seconds.
# needs: 20-prometheus, python3; Slurm may still be starting
# permission: root
# how often: once a head node; safe to run again
# on failure: stop
# timeout: 60 s
# takes: about 0.6 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

readonly SERVICE=slipway-slurm-targets.service
readonly UNIT_FILE=/etc/systemd/system/$SERVICE
readonly PROGRAM=/opt/slipway/current/headnode/slurm-targets.py

targets::main() {
  file::put "$SLIPWAY_BUNDLE/headnode/units/$SERVICE" "$UNIT_FILE" 0644
  unit::ensure "$SERVICE" "$UNIT_FILE" "$PROGRAM"
}

targets::main
