#!/bin/bash
# Lets an account use the instance metadata service, and so the role's credentials: allow-imds.sh ACCOUNT
# With Imds/Secured ParallelCluster accepts root and its own accounts only, in the iptables chain PARALLELCLUSTER_IMDS;
# without this rule Prometheus would sign no remote write, and nothing would arrive in AMP.
# needs: iptables, where that chain exists; does nothing elsewhere
# permission: root
# how often: before each start of the service, because the rule does not survive a reboot; safe to run again
set -euo pipefail

readonly CHAIN=PARALLELCLUSTER_IMDS METADATA_SERVICE=169.254.169.254/32 WAIT_S=10

imds::allow() { # ACCOUNT
  local rule=("$CHAIN" --destination "$METADATA_SERVICE" --match owner --uid-owner "$(id -u "$1")" --jump ACCEPT)
  if ! iptables --wait "$WAIT_S" --list "$CHAIN" --numeric >/dev/null 2>&1; then return 0; fi
  iptables --wait "$WAIT_S" --check "${rule[@]}" 2>/dev/null || iptables --wait "$WAIT_S" --insert "${rule[@]}"
}

if command -v iptables >/dev/null; then imds::allow "${1:?the account is missing}"; fi
