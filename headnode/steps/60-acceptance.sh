#!/bin/bash
# Puts the acceptance command at /usr/local/bin/acceptance.
# needs: python3, acceptance.pyz of the bundle
# permission: root
# how often: once a head node; safe to run again
# on failure: stop
# timeout: 60 s
# takes: about 0.7 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

acceptance::main() {
  python3 "$SLIPWAY_BUNDLE/acceptance.pyz" --help >/dev/null ||
    log::die "acceptance.pyz does not start" "run 'python3 $SLIPWAY_BUNDLE/acceptance.pyz --help'"
  file::put "$SLIPWAY_BUNDLE/headnode/acceptance" /usr/local/bin/acceptance 0755
}

acceptance::main
