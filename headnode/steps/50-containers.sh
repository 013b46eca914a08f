#!/bin/bash
# Queues the import of the container images; it goes on in the background.
# needs: 12-user-scripts, systemd
# permission: root
# how often: once a head node; safe to run again: images that are there are not fetched again
# on failure: report
# timeout: 60 s
# takes: about 0.5 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

readonly UNIT=slipway-containers.service

containers::main() {
  local fsx
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  file::render "$UNIT.j2" "/etc/systemd/system/$UNIT" 0644
  unit::enable "$UNIT"
  systemctl is-active --quiet "$UNIT" || background::status containers waiting "queued" "$fsx/logs/ngc-download.log"
  # Not waited for: an image takes minutes, and the bootstrap action has 35 of them for everything.
  systemctl start --no-block "$UNIT"
  log::info "import queued: follow $fsx/logs/ngc-download.log, or run $fsx/containers/list-containers.sh"
}

containers::main
