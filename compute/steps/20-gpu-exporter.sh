#!/bin/bash
# Starts the GPU exporter (port 9400) in the background on a node with GPUs; a node without has none.
# needs: systemd; what the exporter itself needs: nodes/metrics/gpu-exporter.sh
# permission: root
# how often: once a node; safe to run again: started anew only when its files changed
# on failure: report
# timeout: 60 s
# takes: about 0.2 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

readonly UNIT=slipway-gpu-exporter.service
readonly UNIT_FILE=/etc/systemd/system/$UNIT
readonly NOTE=$SLIPWAY_STATE_DIR/units/$UNIT.sha256

# What a start depends on; the site's files and the AMI's program may be absent.
gpu_exporter::wanted() {
  sha256sum -- "$UNIT_FILE" "$SLIPWAY_BUNDLE"/nodes/metrics/{gpu-exporter.sh,dcgm.tsv,dcgm-counters.csv}
  sha256sum -- /etc/slipway/dcgm-counters.csv "$SLIPWAY_SITE_SOFTWARE" /usr/local/bin/dcgm-exporter 2>/dev/null || true
}

# An AMI made of a GPU node brings the unit to nodes without GPUs.
gpu_exporter::remove() {
  log::info "no GPU on this node: nothing to export"
  [ -e "$UNIT_FILE" ] || return 0
  systemctl disable --quiet --now --no-block "$UNIT"
  rm -f "$UNIT_FILE" "$NOTE"
}

gpu_exporter::main() {
  local wanted
  if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
    gpu_exporter::remove
    return 0
  fi
  file::put "$SLIPWAY_BUNDLE/nodes/metrics/units/$UNIT" "$UNIT_FILE" 0644
  wanted=$(gpu_exporter::wanted)
  # Not waited for: the image takes minutes, and the bootstrap action has 35 of them for everything.
  if systemctl is-enabled --quiet "$UNIT" && [ "$wanted" = "$(cat "$NOTE" 2>/dev/null)" ]; then
    systemctl start --no-block "$UNIT"
    return 0
  fi
  unit::enable "$UNIT"
  systemctl reset-failed "$UNIT" 2>/dev/null || true
  systemctl restart --no-block "$UNIT"
  mkdir -p "${NOTE%/*}"
  printf '%s\n' "$wanted" | file::put - "$NOTE" 0644
  log::info "the GPU exporter starts in the background: follow $SLIPWAY_LOG_DIR/gpu-exporter.log"
}

gpu_exporter::main
