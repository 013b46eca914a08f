#!/bin/bash
# Starts the GPU exporter (port 9400) where the image has one at /usr/local/bin/dcgm-exporter.
# needs: systemd
# permission: root
# how often: once a node; safe to run again
# on failure: report
# timeout: 60 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../bootstrap/common.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../bootstrap/common.sh"

readonly UNIT=slipway-gpu-exporter.service
readonly UNIT_FILE=/etc/systemd/system/$UNIT
readonly PROGRAM=/usr/local/bin/dcgm-exporter

gpu_exporter::main() {
  if [ ! -x "$PROGRAM" ]; then
    [ ! -e /dev/nvidia0 ] || log::die "this node has GPUs, but no $PROGRAM: there are no GPU metrics of it" \
      "put DCGM exporter into the image at $PROGRAM, then run this step again"
    log::info "no GPU and no $PROGRAM on this node: nothing to export"
    return 0
  fi
  file::put "$SLIPWAY_BUNDLE/bootstrap/units/$UNIT" "$UNIT_FILE" 0644
  unit::ensure "$UNIT" "$UNIT_FILE" "$PROGRAM"
  unit::wait_http "$UNIT" http://127.0.0.1:9400/metrics
}

gpu_exporter::main
