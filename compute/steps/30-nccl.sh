#!/bin/bash
# Points this node to the NCCL on the shared file system, where there is one, and says which versions it finds.
# needs: FSx mounted at FSX_MOUNT
# permission: root
# how often: once a node, and by apply-nccl-to-running-nodes.sh; safe to run again
# on failure: stop
# timeout: 60 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../bootstrap/common.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../bootstrap/common.sh"

readonly PROFILE=/etc/profile.d/nccl-shared.sh
readonly EFA_VERSIONS=/opt/amazon/efa_installed_packages
readonly READ_TIMEOUT_S=10

# Each look is bounded: a path on a file system that hangs must not hang the node.
nccl::report_versions() { # NCCL_DIRECTORY
  local text
  text=$(timeout "$READ_TIMEOUT_S" head --lines=1 "$1/.nccl_version" 2>/dev/null || true)
  log::info "NCCL on the shared file system: ${text:-none}"
  text=$(timeout "$READ_TIMEOUT_S" head --lines=1 "$EFA_VERSIONS" 2>/dev/null || true)
  log::info "EFA: ${text:-none ($EFA_VERSIONS is not there)}"
  text=$(timeout "$READ_TIMEOUT_S" find /opt/amazon/ofi-nccl -name 'libnccl-net*.so' -print -quit 2>/dev/null || true)
  log::info "NCCL plugin of the image: ${text:-none below /opt/amazon/ofi-nccl}"
}

nccl::main() {
  local fsx environment
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  environment=$(env::get NCCL_ENVIRONMENT recommended)
  [[ $environment =~ ^(recommended|legacy)$ ]] ||
    log::die "$SLIPWAY_NODE_ENV: NCCL_ENVIRONMENT = '$environment': neither recommended nor legacy" \
      "correct NCCL_ENVIRONMENT in /etc/slipway/site.env and run the setup again"
  nccl::report_versions "$fsx/nccl"
  if [ -f "$fsx/nccl/setup-nccl-env.sh" ]; then
    file::put "$SLIPWAY_BUNDLE/compute/nccl-shared.sh" "$PROFILE" 0644
    log::info "$PROFILE sets the $environment environment in new shells and jobs"
  elif [ "$(env::get NCCL_SOURCE image)" = shared ]; then
    log::warn "NCCL_SOURCE=shared, but $fsx/nccl/setup-nccl-env.sh is not there yet: run install-nccl-shared.sh on the head node"
  else
    log::info "no $fsx/nccl/setup-nccl-env.sh: jobs use the NCCL of their image"
  fi
}

nccl::main
