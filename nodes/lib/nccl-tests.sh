# shellcheck shell=bash
# nccl-tests.sh: where nccl-tests are on a node. Sourced by the steps of both node kinds.

readonly NCCL_TESTS_PLACE=/opt/nccl-tests/build # what users type

# The directory of the image's own nccl-tests; nothing where it has none. Our link to the shared file system is not it.
nccl_tests::of_image() {
  local directory
  for directory in "$NCCL_TESTS_PLACE" /opt/nccl-tests /opt/amazon/nccl-tests/build /usr/local/nccl-tests/build /usr/local/cuda-*/efa/test-cuda-*; do
    if [ ! -L "$directory" ] && [ -x "$directory/all_reduce_perf" ]; then
      printf '%s' "$directory"
      return 0
    fi
  done
}

# /opt/nccl-tests/build leads to the shared build, also before there is one; never over a directory of the image.
nccl_tests::link() { # FSX_MOUNT
  if [ -e "$NCCL_TESTS_PLACE" ] && [ ! -L "$NCCL_TESTS_PLACE" ]; then
    log::info "$NCCL_TESTS_PLACE is the image's own: kept"
    return 0
  fi
  mkdir -p "${NCCL_TESTS_PLACE%/*}"
  file::link "$1/nccl/nccl-tests" "$NCCL_TESTS_PLACE"
}
