#!/bin/bash
# install-nccl-shared.sh [--pin] [NCCL_VERSION [OFI_VERSION [SHARED_DIR]]]: builds NCCL and the EFA plugin for all nodes.
#
#   NCCL_VERSION  tag of NVIDIA/nccl, as v2.28.7-1        (default: NCCL_VERSION of node.env)
#   OFI_VERSION   tag of aws/aws-ofi-nccl, as v1.17.2-aws (default: OFI_VERSION of node.env)
#   SHARED_DIR    the shared file system                  (default: FSX_MOUNT of node.env)
#   --pin         builds nothing: fetches both sources from upstream once, and writes their sha256 to
#                 /etc/slipway/software.tsv for you to review
#
# The sources are held against the sha256 in software.tsv, or in the SHA256SUMS of SOFTWARE_MIRROR; a version that
# neither knows is not built. The result goes to SHARED_DIR/nccl/versions/NCCL_OFI; SHARED_DIR/nccl/current points to it
# once it is whole and checked. nccl-tests is built too where software.tsv has a line of it.
#
# needs:       CUDA's nvcc, gcc, g++, make, autoconf, automake, libtool, hwloc's headers; EFA in /opt/amazon/efa
# permission:  root, on the head node
# how often:   once a version; safe to run again: a version that is whole is only checked
# on failure:  exit 1; the NCCL in use stays as it was. The build takes 10 minutes and more: run it in a terminal
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../bootstrap/common.sh
source /opt/slipway/current/bootstrap/common.sh

readonly CUDA=${CUDA_HOME:-/usr/local/cuda}
readonly EFA=/opt/amazon/efa
readonly MPI=/opt/amazon/openmpi
readonly BUILD_TIMEOUT_S=5400
readonly CHECK_TIMEOUT_S=120

nccl::plain() { # TAG: the version that software.tsv names, without "v" in front and "-aws" behind
  local version=${1#v}
  printf '%s' "${version%-aws}"
}

nccl::upstream() { # NAME VERSION
  case $1 in
    nccl) printf 'https://github.com/NVIDIA/nccl/archive/v%s.tar.gz' "$2" ;;
    aws-ofi-nccl) printf 'https://github.com/aws/aws-ofi-nccl/archive/v%s.tar.gz' "$2" ;;
  esac
}

nccl::pin() { # NAME VERSION
  local file
  if software::find "$1" "$2"; then
    log::info "$1 $2 is pinned already: $SOFTWARE_SHA256"
    return 0
  fi
  file=$WORK/$1.tar.gz
  retry::run "$FETCH_TRIES" 2 fetch::once "$(nccl::upstream "$1" "$2")" "$file"
  {
    [ ! -r "$SLIPWAY_SITE_SOFTWARE" ] || cat "$SLIPWAY_SITE_SOFTWARE"
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$(fetch::sha256 "$file")" "$(nccl::upstream "$1" "$2")"
  } >"$WORK/software.tsv"
  file::put "$WORK/software.tsv" "$SLIPWAY_SITE_SOFTWARE" 0644
  log::info "$1 $2: sha256 $(fetch::sha256 "$file") as served now; compare it with a second source before you build"
}

# Both projects name their archive after the tag alone: in a mirror it is NAME-VERSION.tar.gz.
nccl::source() { # NAME VERSION: unpacks to WORK/NAME
  local mirror
  mirror=$(env::get SOFTWARE_MIRROR '')
  if [ -n "$mirror" ]; then
    SOFTWARE_VERSION=$2 SOFTWARE_URL=$mirror/$1-$2.tar.gz
  else
    software::find "$1" "$2" ||
      log::die "software.tsv does not know $1 $2" "run this script with --pin first, and review $SLIPWAY_SITE_SOFTWARE"
  fi
  software::download "$1"
  mkdir "$WORK/$1"
  tar --extract --gzip --no-same-owner --strip-components=1 --file "$SOFTWARE_FILE" --directory "$WORK/$1"
}

# Code for the GPUs that this nvcc knows, of those that EFA clusters have: A100, H100/H200, B200, B300.
nccl::gencode() {
  local known arch flags=()
  known=$("$CUDA/bin/nvcc" --list-gpu-code)
  for arch in 80 90 100 103; do
    if grep --quiet --line-regexp "sm_$arch" <<<"$known"; then
      flags+=("-gencode=arch=compute_$arch,code=sm_$arch")
    fi
  done
  printf '%s' "${flags[*]}"
}

nccl::check_tools() {
  local tool
  [ "$(id -u)" -eq 0 ] || log::die "this needs root" "run: sudo bash $0 $*"
  [ -x "$CUDA/bin/nvcc" ] || log::die "there is no $CUDA/bin/nvcc" "install the CUDA toolkit, or set CUDA_HOME"
  [ -d "$EFA" ] || log::die "there is no $EFA" "install the EFA software, or use an image of ParallelCluster"
  for tool in gcc g++ make autoreconf libtoolize; do
    command -v "$tool" >/dev/null || log::die "$tool is not installed" "install gcc, g++, make, autoconf, automake and libtool"
  done
}

nccl::build() { # NCCL_VERSION OFI_VERSION RELEASE
  local jobs gencode
  jobs=$(nproc)
  gencode=$(nccl::gencode)
  nccl::source nccl "$1"
  nccl::source aws-ofi-nccl "$2"
  log::info "building NCCL $1 with $jobs jobs"
  timeout "$BUILD_TIMEOUT_S" make -C "$WORK/nccl" -j "$jobs" src.build CUDA_HOME="$CUDA" NVCC_GENCODE="$gencode"
  make -C "$WORK/nccl" src.install CUDA_HOME="$CUDA" PREFIX="$3" NVCC_GENCODE="$gencode"
  log::info "building the EFA plugin $2"
  # Without --enable-platform-aws the plugin would lose its settings for each instance type.
  (
    cd "$WORK/aws-ofi-nccl"
    timeout "$BUILD_TIMEOUT_S" ./autogen.sh
    timeout "$BUILD_TIMEOUT_S" ./configure --prefix="$3/plugin" --with-libfabric="$EFA" --with-cuda="$CUDA" \
      --with-mpi="$MPI" --enable-platform-aws
    timeout "$BUILD_TIMEOUT_S" make -j "$jobs"
    make install
    grep --quiet -e --enable-platform-aws config.log
  )
  if software::find nccl-tests; then
    nccl::source nccl-tests "$SOFTWARE_VERSION"
    timeout "$BUILD_TIMEOUT_S" make -C "$WORK/nccl-tests" -j "$jobs" MPI=1 MPI_HOME="$MPI" CUDA_HOME="$CUDA" NCCL_HOME="$3" NVCC_GENCODE="$gencode"
    cp -r "$WORK/nccl-tests/build" "$3/nccl-tests"
  else
    log::info "nccl-tests is not built: software.tsv has no line of it"
  fi
}

# Both libraries are there, and each finds what it links to.
nccl::verify() { # RELEASE
  local library plugin missing
  plugin=$(find "$1/plugin" -name 'libnccl-net*.so' -print -quit)
  [ -n "$plugin" ] || log::die "the build left no libnccl-net*.so in $1/plugin" "see the lines of 'make install' above"
  for library in "$1/lib/libnccl.so" "$plugin"; do
    missing=$(LD_LIBRARY_PATH=$1/lib:$EFA/lib:$EFA/lib64:$CUDA/lib64 ldd "$library" | grep 'not found' || true)
    [ -z "$missing" ] || log::die "$library: $missing" "the library it needs is not on this node"
  done
  if [ -e /dev/nvidia0 ] && [ -x "$1/nccl-tests/all_reduce_perf" ]; then
    LD_LIBRARY_PATH=$1/lib timeout "$CHECK_TIMEOUT_S" "$1/nccl-tests/all_reduce_perf" -b 8 -e 8M -f 2 -g 1
  else
    log::info "no GPU here, or no nccl-tests: run all_reduce_perf as a job to see it work"
  fi
}

nccl::use() { # HOME RELEASE NCCL_TAG
  file::link "versions/${2##*/}" "$1/current"
  printf '%s\n' "$3" | file::put - "$1/.nccl_version" 0644
  # Last: compute nodes take its presence as "there is an NCCL here".
  file::put "$SLIPWAY_BUNDLE/headnode/user/setup-nccl-env.sh" "$1/setup-nccl-env.sh" 0644
}

nccl::main() { # [--pin] [NCCL_TAG [OFI_TAG [SHARED_DIR]]]
  local pin=no tag nccl ofi home release
  if [ "${1:-}" = --pin ]; then
    pin=yes
    shift
  fi
  env::load "$SLIPWAY_NODE_ENV"
  tag=${1:-$(env::get NCCL_VERSION)}
  nccl=$(nccl::plain "$tag")
  ofi=$(nccl::plain "${2:-$(env::get OFI_VERSION)}")
  home=${3:-$(env::get_path FSX_MOUNT /fsx)}/nccl
  [[ $nccl =~ ^[0-9]+(\.[0-9]+)+-[0-9]+$ ]] || log::die "NCCL version '$tag': not as v2.28.7-1" "see $0's first lines"
  [[ $ofi =~ ^[0-9]+(\.[0-9]+)+$ ]] || log::die "plugin version '${2:-$ofi}': not as v1.17.2-aws" "see $0's first lines"
  WORK=$(mktemp -d /var/tmp/slipway-nccl.XXXXXX)
  trap 'rm -rf "$WORK"' EXIT
  if [ "$pin" = yes ]; then
    nccl::pin nccl "$nccl"
    nccl::pin aws-ofi-nccl "$ofi"
    return 0
  fi
  nccl::check_tools "$@"
  mkdir -p "$home/versions"
  exec 9>"$home/.install.lock"
  flock --nonblock 9 || log::die "another install-nccl-shared.sh is running" "wait for it"
  release=$home/versions/${nccl}_$ofi
  if [ ! -f "$release/.complete" ]; then
    rm -rf "$release"
    nccl::build "$nccl" "$ofi" "$release"
    nccl::verify "$release"
    touch "$release/.complete"
  fi
  nccl::use "$home" "$release" "$tag"
  log::info "NCCL $tag is in $home; nodes that are up already: bash $home/apply-nccl-to-running-nodes.sh"
}

nccl::main "$@"
