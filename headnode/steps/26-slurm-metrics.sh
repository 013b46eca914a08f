#!/bin/bash
# Starts the timers that write Slurm's metrics, or point Prometheus to Slurm's own endpoint, and that note refused metrics.
# needs: 15-node-exporter, 20-prometheus, python3; Slurm may still be starting
# permission: root
# how often: once a head node; safe to run again
# on failure: report
# timeout: 60 s
# takes: about 0.7 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"
# shellcheck source-path=SCRIPTDIR source=../../nodes/metrics/timer.sh
source "$SLIPWAY_BUNDLE/nodes/metrics/timer.sh"

metrics::timer slurm-metrics
metrics::timer remote-write
