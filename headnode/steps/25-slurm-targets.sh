#!/bin/bash
# Tells Prometheus which nodes to scrape: a service writes the nodes that Slurm knows, every 3 seconds.
# needs: 20-prometheus, python3; Slurm may still be starting
# permission: root
# how often: once a head node; safe to run again
# on failure: stop
# timeout: 60 s
# takes: about 0.7 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

readonly SERVICE=slipway-slurm-targets.service
readonly UNIT_FILE=/etc/systemd/system/$SERVICE
readonly PROGRAM=/usr/local/libexec/slipway/slurm-targets.py

targets::main() {
  mkdir -p "${PROGRAM%/*}"
  file::put "$SLIPWAY_BUNDLE/headnode/slurm-targets.py" "$PROGRAM" 0755
  file::put "$SLIPWAY_BUNDLE/headnode/units/$SERVICE" "$UNIT_FILE" 0644
  unit::ensure "$SERVICE" "$UNIT_FILE" "$PROGRAM"
}

targets::main
