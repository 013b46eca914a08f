#!/bin/bash
# setup-headnode.sh: runs the head node's steps (nodes/steps and headnode/steps, in the order of their numbers).
#
# needs:       /etc/slipway/node.env (written by use-bundle.sh), systemd
# permission:  root
# how often:   once, by use-bundle.sh; safe to run again at any time
# on failure:  exit 1, with one line "slipway: FAULT ..." that names the step, its log and what to do
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../nodes/lib/all.sh"
steps::run_all headnode
