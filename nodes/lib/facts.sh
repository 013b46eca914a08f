# shellcheck shell=bash
# facts.sh: what this node's instance type has, for the steps. Sourced after all.sh.

# Prints one fact (gpus, efa_devices, nvlink_links, nvme_gb, nvswitch) as JSON: a number, true, false, or null where the
# instance type is not known.
facts::get() { # NAME
  local all
  all=$(python3 -B "$SLIPWAY_BUNDLE/nodes/health" --facts)
  [[ $all =~ \"$1\":\ ([a-z0-9]+) ]] ||
    log::die "slipway-health --facts has no $1: $all" "deploy again: the bundle is damaged"
  printf '%s' "${BASH_REMATCH[1]}"
}
