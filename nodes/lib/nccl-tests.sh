# shellcheck shell=bash
# nccl-tests.sh: the place of nccl-tests on a node. Sourced by the steps of both kinds of node, after all.sh.

# /opt/nccl-tests/build leads to the shared build, also before there is one; never over a directory of the image.
nccl_tests::link() { # FSX_MOUNT
  local place=/opt/nccl-tests/build
  if [ -e "$place" ] && [ ! -L "$place" ]; then
    log::info "$place is the image's own: kept"
    return 0
  fi
  mkdir -p "${place%/*}"
  file::link "$1/nccl/nccl-tests" "$place"
}
