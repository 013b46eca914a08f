#!/bin/bash
# background-ended.sh NAME: says of a background work that was killed that it failed: by itself it would stay "running".
#
# needs:       systemd, which sets SERVICE_RESULT
# permission:  root
# how often:   by systemd, after each end of slipway-NAME.service (ExecStopPost)
# on failure:  the state stays as it was
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/all.sh"

ended::main() { # NAME
  local log
  [ "${SERVICE_RESULT:-success}" != success ] || return 0
  [[ $(background::field "$1" state) =~ ^(waiting|running)$ ]] || return 0
  log=$(background::field "$1" log)
  background::status "$1" failed "ended ($SERVICE_RESULT) while: $(background::field "$1" detail)" "$log" \
    "see 'journalctl -u slipway-$1', repair, then: sudo systemctl restart slipway-$1"
}

ended::main "$1"
