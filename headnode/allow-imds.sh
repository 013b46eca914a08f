#!/bin/bash
# Lets an account use the instance metadata service, and so the role's credentials: allow-imds.sh [--check] ACCOUNT
# With Imds/Secured ParallelCluster accepts root, its own accounts and the default user, in the iptables chain
# PARALLELCLUSTER_IMDS; without this rule Prometheus would sign no remote write, and nothing would arrive in AMP.
# --check changes nothing: exit 1 when the chain exists without the rule.
# needs: iptables, where that chain exists; does nothing elsewhere
# permission: root
# how often: before each start of the service, because the rule does not survive a reboot; safe to run again
set -euo pipefail

readonly CHAIN=PARALLELCLUSTER_IMDS METADATA_SERVICE=169.254.169.254/32 WAIT_S=10
# It restores all rules with iptables-restore, which removes others', and ends. A unit of this type counts as started
# before that is done (cookbook 3.12: imds/parallelcluster-iptables.service, imds/restore_tables.sh).
readonly RESTORES=parallelcluster-iptables.service

imds::restored() {
  local end=$((SECONDS + WAIT_S))
  while systemctl is-active --quiet "$RESTORES" 2>/dev/null && [ "$SECONDS" -lt "$end" ]; do sleep 0.2; done
}

imds::main() { # [--check] ACCOUNT
  local check='' rule user
  if [ "$1" = --check ]; then
    check=yes
    shift
  fi
  user=$(id -u "${1:?the account is missing}")
  rule=("$CHAIN" --destination "$METADATA_SERVICE" --match owner --uid-owner "$user" --jump ACCEPT)
  [ -n "$check" ] || imds::restored
  if ! iptables --wait "$WAIT_S" --list "$CHAIN" --numeric >/dev/null 2>&1; then return 0; fi
  if iptables --wait "$WAIT_S" --check "${rule[@]}" 2>/dev/null; then return 0; fi
  [ -z "$check" ] || return 1
  iptables --wait "$WAIT_S" --insert "${rule[@]}"
}

if command -v iptables >/dev/null; then imds::main "$@"; fi
