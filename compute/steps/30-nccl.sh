#!/bin/bash
# Makes this node and its containers use the NCCL on the shared file system, and prints the versions.
# needs: FSx mounted at FSX_MOUNT
# permission: root
# how often: once a node, and by apply-nccl-to-running-nodes.sh; safe to run again
# on failure: stop
# timeout: 60 s
# takes: about 0.1 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/nccl-tests.sh
source "$SLIPWAY_BUNDLE/nodes/lib/nccl-tests.sh"

readonly PROFILE=/etc/profile.d/nccl-shared.sh
readonly ENROOT=/etc/enroot
readonly EFA_VERSIONS=/opt/amazon/efa_installed_packages
readonly READ_TIMEOUT_S=10

# Each read is bounded: a file system that hangs must not hang the node.
nccl::report_versions() { # NCCL_DIRECTORY
  local text
  text=$(timeout "$READ_TIMEOUT_S" head --lines=1 "$1/.nccl_version" 2>/dev/null || true)
  log::info "NCCL on the shared file system: ${text:-none}"
  text=$(timeout "$READ_TIMEOUT_S" head --lines=1 "$EFA_VERSIONS" 2>/dev/null || true)
  log::info "EFA: ${text:-none ($EFA_VERSIONS is not there)}"
  text=$(timeout "$READ_TIMEOUT_S" find /opt/amazon/ofi-nccl -name 'libnccl-net*.so' -print -quit 2>/dev/null || true)
  log::info "NCCL plugin of the image: ${text:-none below /opt/amazon/ofi-nccl}"
}

# Two files that enroot reads at each start of a container; not written on a node without enroot.
nccl::containers() { # NCCL_DIRECTORY
  local directory
  command -v enroot >/dev/null || return 0
  for directory in "$ENROOT" "$ENROOT/mounts.d" "$ENROOT/hooks.d"; do
    file::directory "$directory" 0755
  done
  {
    printf '# Written by Slipway: the shared NCCL, and the libfabric that its plugin was built with.\n'
    printf '%s %s none x-create=dir,bind,ro,nosuid,nodev,nofail,silent\n' "$1" "$1" /opt/amazon/efa /opt/amazon/efa
  } | file::put - "$ENROOT/mounts.d/60-slipway-nccl.fstab" 0644
  file::put "$SLIPWAY_BUNDLE/compute/enroot/60-slipway-nccl.sh" "$ENROOT/hooks.d/60-slipway-nccl.sh" 0755
}

nccl::main() {
  local fsx environment
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  environment=$(env::get NCCL_ENVIRONMENT recommended)
  [[ $environment =~ ^(recommended|legacy)$ ]] ||
    log::die "$SLIPWAY_NODE_ENV: NCCL_ENVIRONMENT = '$environment': neither recommended nor legacy" \
      "correct NCCL_ENVIRONMENT in /etc/slipway/site.env and run the set-up again"
  nccl::report_versions "$fsx/nccl"
  nccl_tests::link "$fsx"
  if [ ! -f "$fsx/nccl/setup-nccl-env.sh" ] && [ "$(env::get NCCL_SOURCE image)" != shared ]; then
    log::info "no $fsx/nccl/setup-nccl-env.sh: jobs use the NCCL of their image"
    return 0
  fi
  # With NCCL_SOURCE=shared also before the head node has built it: both files look for NCCL when they are used.
  nccl::containers "$fsx/nccl"
  file::put "$SLIPWAY_BUNDLE/compute/nccl-shared.sh" "$PROFILE" 0644
  log::info "$PROFILE sets the $environment environment in new shells and jobs, from the moment that the NCCL is there"
}

nccl::main
