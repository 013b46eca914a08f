#!/bin/bash
# install-nccl-shared.sh [NCCL_TAG [OFI_TAG [PREFIX]]]: builds NCCL, the EFA plugin and nccl-tests for all nodes.
#
#   NCCL_TAG  tag of NVIDIA/nccl, as v2.28.7-1          (default: NCCL_VERSION of node.env)
#   OFI_TAG   tag of aws/aws-ofi-nccl, as v1.17.2-aws   (default: OFI_VERSION of node.env)
#   PREFIX    the shared file system                    (default: FSX_MOUNT of node.env)
#
#   --tests-only [NCCL_TAG [OFI_TAG [PREFIX]]]  only NCCL and nccl-tests, with the plugin of the image: for acceptance.
#                                               The environment of users and jobs stays as it is
#   --pin [NCCL_TAG [OFI_TAG]]  builds nothing: fetches both sources from upstream once, and writes their sha256 to
#                               /etc/slipway/software.tsv for you to review
#   --list [PREFIX]             the installed versions
#   --rollback [PREFIX]         back to the version that was in use before; again: forward
#
# The sources are compared with the sha256 in software.tsv, or in the SHA256SUMS of SOFTWARE_MIRROR; a version without a
# known sha256 is not built. It is built on local disk for the GPUs of NCCL_GPU_ARCHS (node.env), put whole into
# PREFIX/nccl/versions/NCCL_OFI and checked by loading it; only then PREFIX/nccl/current points to it, by one rename, so
# running jobs keep theirs. Older versions stay. The compilers' output: /var/log/slipway/nccl.log
#
# needs:       CUDA's nvcc, gcc, g++, make, autoconf, automake, libtool, hwloc's headers; EFA and MPI in /opt/amazon
# permission:  root, on the head node
# how often:   once a version; safe to run again: a version that is whole is only put in use
# on failure:  exit 1; the NCCL in use stays as it was
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source /opt/slipway/current/nodes/lib/all.sh
# shellcheck source-path=SCRIPTDIR source=../nccl/sources.sh
source "$SLIPWAY_BUNDLE/headnode/nccl/sources.sh"
# shellcheck source-path=SCRIPTDIR source=../nccl/build.sh
source "$SLIPWAY_BUNDLE/headnode/nccl/build.sh"
# shellcheck source-path=SCRIPTDIR source=../nccl/releases.sh
source "$SLIPWAY_BUNDLE/headnode/nccl/releases.sh"

readonly LOCK_TIMEOUT_S=7200
readonly INSTALL_AGAIN=${SLIPWAY_AGAIN:-"sudo bash $0 $*"} # slipway-nccl.service says how it is started again
INSTALL_PARTIAL='' INSTALL_BEFORE=''

# One install at a time; who comes second waits, then finds most of the work done.
install::lock() {
  file::lock /run/slipway/nccl.lock
  exec 9>/run/slipway/nccl.lock
  flock --nonblock 9 && return 0
  log::info "another install runs (see $BUILD_LOG): waiting for it, at most $LOCK_TIMEOUT_S s"
  flock --wait "$LOCK_TIMEOUT_S" 9 ||
    log::die "another install ran for more than $LOCK_TIMEOUT_S s" "see 'systemctl status slipway-nccl' and $BUILD_LOG"
}

# However it ends: removes what is not whole, and records the result for `slipway status` and acceptance.
install::end() { # EXIT_STATUS
  [ -z "$BUILD_WORK" ] || rm -rf "$BUILD_WORK"
  [ -z "$INSTALL_PARTIAL" ] || rm -rf "$INSTALL_PARTIAL"
  if [ "$1" -ne 0 ] && [ -n "$INSTALL_BEFORE" ]; then
    background::status nccl 'done' "$INSTALL_BEFORE" "$BUILD_LOG"
  elif [ "$1" -ne 0 ]; then
    background::status nccl failed "${LOG_REASON:-$BUILD_PHASE failed}" "$BUILD_LOG" \
      "${LOG_HINT:-read $BUILD_LOG}; then: $INSTALL_AGAIN"
  fi
}

install::done() { # KIND NCCL_VERSION OFI_VERSION RELEASE
  background::status nccl 'done' "$(releases::name "$1" "$2" "$3") in $4" "$BUILD_LOG"
}

install::build() { # KIND NCCL_VERSION OFI_VERSION RELEASE
  build::work_directory
  build::all "$1" "$2" "$3" "$4"
  build::phase "copying to $4"
  mkdir -p "${4%/*}"
  # The lock is held, so a version without .complete was left over by a killed run.
  rm -rf "$4" "${4%/*}"/.new.*
  INSTALL_PARTIAL=${4%/*}/.new.${4##*/}
  cp -r "$BUILD_WORK/stage" "$INSTALL_PARTIAL" 2>>"$BUILD_LOG" || build::failed "copying to $4" 1 "${4%/*}"
  mv --no-target-directory "$INSTALL_PARTIAL" "$4"
  INSTALL_PARTIAL=$4
  build::phase 'checking by loading'
  releases::check "$1" "$2" "$3" "$4"
  INSTALL_PARTIAL=
}

install::main() { # KIND [NCCL_TAG [OFI_TAG [PREFIX]]]
  local kind=$1 tag ofi nccl prefix release
  tag=${2:-$(env::get NCCL_VERSION)}
  nccl=$(sources::version nccl "$tag")
  ofi=$(sources::version aws-ofi-nccl "${3:-$(env::get OFI_VERSION)}")
  prefix=${4:-$(env::get_path FSX_MOUNT /fsx)}
  releases::home "$prefix"
  build::check "$kind"
  install::lock
  # A version that is tried by hand and fails does not change the state of a good install; the settings' version does.
  if [ -z "${SLIPWAY_AGAIN:-}" ] && [ "$(background::field nccl state)" = 'done' ]; then
    INSTALL_BEFORE=$(background::field nccl detail)
  fi
  trap 'install::end "$?"' EXIT
  file::directory "$NCCL_SHARED" 0755
  file::directory "$NCCL_SHARED/versions" 0755
  release=$(releases::find "$kind" "$nccl" "$ofi")
  if [ ! -f "$release/.complete" ]; then
    install::build "$kind" "$nccl" "$ofi" "$release"
  fi
  releases::use "$kind" "$release"
  install::done "$kind" "$nccl" "$ofi" "$release"
  [ "$kind" = tests ] || log::info "nodes that are up already: bash $NCCL_SHARED/apply-nccl-to-running-nodes.sh"
}

install::rollback() { # PREFIX
  local release
  releases::home "$1"
  release=$(releases::before)
  releases::use shared "$release"
  install::done shared "$(releases::fact "$release" nccl)" "$(releases::fact "$release" ofi)" "$release"
}

[[ $(id -u) -eq 0 || ${1:-} == --list ]] || log::die 'this needs root' "run: sudo bash $0 $*"
env::load "$SLIPWAY_NODE_ENV"
case ${1:-} in
  --tests-only) install::main tests "${@:2}" ;;
  --pin) sources::pin_both "${@:2}" ;;
  --list) releases::list "${2:-$(env::get_path FSX_MOUNT /fsx)}" ;;
  --rollback)
    install::lock
    install::rollback "${2:-$(env::get_path FSX_MOUNT /fsx)}"
    ;;
  -*) log::die "unknown option '$1'" "use --tests-only, --pin, --list or --rollback: see the first lines of $0" ;;
  *) install::main shared "$@" ;;
esac
