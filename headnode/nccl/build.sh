# shellcheck shell=bash
# build.sh: builds NCCL, the EFA plugin and nccl-tests below BUILD_WORK/stage. Sourced by install-nccl-shared.sh.

readonly BUILD_LOG=$SLIPWAY_LOG_DIR/nccl.log
readonly BUILD_CUDA=${CUDA_HOME:-/usr/local/cuda}
readonly BUILD_MPI=${MPI_HOME:-/opt/amazon/openmpi}
readonly BUILD_EFA=/opt/amazon/efa
readonly BUILD_IMAGE_PLUGIN=/opt/amazon/ofi-nccl
readonly BUILD_TIMEOUT_S=5400           # of one make
readonly BUILD_KIB_PER_JOB=2097152      # one nvcc takes about 2 GiB: NVIDIA/cccl pull request 11160, 2026-09
readonly BUILD_FULL_KIB=2048            # a file system with less is full: what did not fit was larger
BUILD_WORK='' BUILD_PHASE='the install' # the directory of this build, and what it does now

# Reports everything that is missing, at once, with the command that installs it.
build::check() { # KIND
  local tool wrong=() packages
  [ -x "$BUILD_CUDA/bin/nvcc" ] || wrong+=("$BUILD_CUDA/bin/nvcc (the CUDA toolkit, or set CUDA_HOME)")
  [ -d "$BUILD_MPI/include" ] || wrong+=("$BUILD_MPI (Open MPI of the EFA installer, or set MPI_HOME)")
  for tool in gcc g++ make; do
    command -v "$tool" >/dev/null || wrong+=("$tool")
  done
  if [ "$1" = shared ]; then
    [ -d "$BUILD_EFA" ] || wrong+=("$BUILD_EFA (the EFA software)")
    for tool in autoreconf automake libtoolize; do
      command -v "$tool" >/dev/null || wrong+=("$tool")
    done
    [ -e /usr/include/hwloc.h ] || wrong+=('/usr/include/hwloc.h')
  fi
  if [ "${#wrong[@]}" -gt 0 ]; then
    packages='apt-get install gcc g++ make autoconf automake libtool libhwloc-dev'
    ! command -v dnf >/dev/null || packages='dnf install gcc gcc-c++ make autoconf automake libtool hwloc-devel'
    log::die "not on this node: $(printf '%s, ' "${wrong[@]}" | sed 's/, $//')" \
      "sudo $packages; CUDA, EFA and MPI come with ParallelCluster's images"
  fi
  build::architectures
}

# Checks the GPUs to build for: those of the queues only, since each architecture takes about as long as the first.
build::architectures() {
  local archs known arch unknown=()
  archs=$(env::get NCCL_GPU_ARCHS '')
  [[ $archs =~ ^[0-9]{2,3}(\ [0-9]{2,3})*$ ]] ||
    log::die "$SLIPWAY_NODE_ENV: NCCL_GPU_ARCHS = '$archs': no compute capabilities such as '90 100'" \
      "no queue has GPUs? else set NCCL_GPU_ARCHS in /etc/slipway/site.env and run the set-up again"
  known=$("$BUILD_CUDA/bin/nvcc" --list-gpu-code)
  for arch in $archs; do
    grep --quiet --line-regexp "sm_$arch" <<<"$known" || unknown+=("sm_$arch")
  done
  [ "${#unknown[@]}" -eq 0 ] ||
    log::die "$BUILD_CUDA/bin/nvcc ($(build::cuda_version)) does not know ${unknown[*]}" \
      "the GPUs of a queue are too new or too old for this CUDA: set CUDA_HOME to a toolkit that knows them"
}

build::cuda_version() {
  "$BUILD_CUDA/bin/nvcc" --version | sed --quiet 's/.*release \([0-9.]*\).*/\1/p'
}

# Prints the number of compilers to run: one a CPU, but no more than fit into the free memory.
build::jobs() {
  local free cpus
  free=$(sed --quiet 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo)
  cpus=$(nproc)
  free=$((free / BUILD_KIB_PER_JOB + 1))
  printf '%s' "$((free < cpus ? free : cpus))"
}

# On local NVMe where ParallelCluster mounts it. Removes what killed builds left behind. The name is unique, because
# processes of a killed build may still be running.
build::work_directory() {
  local place=/var/tmp
  ! mountpoint --quiet /scratch || place=/scratch
  rm -rf "$place"/slipway-nccl.*
  BUILD_WORK=$(mktemp -d "$place/slipway-nccl.XXXXXX") ||
    log::die "cannot write in $place" "is it full or read-only? see 'df -h $place'"
  export TMPDIR=$BUILD_WORK
  mkdir -p "$SLIPWAY_LOG_DIR"
  [ ! -e "$BUILD_LOG" ] || mv --force "$BUILD_LOG" "$BUILD_LOG.1"
}

build::phase() { # TEXT
  BUILD_PHASE=$1
  log::info "$1"
  printf 'slipway: %s\n' "$1" >>"$BUILD_LOG"
  background::status nccl running "$1" "$BUILD_LOG"
}

build::failed() { # WHAT EXIT_STATUS DIRECTORY
  local free hint="read $BUILD_LOG"
  tail --lines=15 "$BUILD_LOG" 2>/dev/null || true
  free=$(df --output=avail "$3" 2>/dev/null | tail --lines=1 || true)
  if [ "$2" -eq 124 ]; then
    hint="it took more than $BUILD_TIMEOUT_S s: a head node with more CPUs, or see what hung in $BUILD_LOG"
  elif [[ $free =~ ^\ *[0-9]+$ && $free -lt $BUILD_FULL_KIB ]]; then
    hint="the disk is full: make room, see 'df -h $3'"
  fi
  log::die "$1 failed (exit $2)" "$hint"
}

build::run() { # DIRECTORY COMMAND [ARGUMENT ...]: its output goes to the log
  local status=0 directory=$1
  shift
  printf '+ %s\n' "$*" >>"$BUILD_LOG"
  (cd "$directory" && exec timeout --kill-after=10 "$BUILD_TIMEOUT_S" "$@") >>"$BUILD_LOG" 2>&1 </dev/null 9>&- ||
    status=$?
  [ "$status" -eq 0 ] || build::failed "$BUILD_PHASE" "$status" "$directory"
}

build::all() { # KIND NCCL_VERSION OFI_VERSION RELEASE
  local tests plugin
  tests=$(sources::tests_version)
  build::phase "fetching the sources of NCCL $2"
  sources::unpack nccl "$2" "$BUILD_WORK"
  sources::unpack nccl-tests "$tests" "$BUILD_WORK"
  [ "$1" = tests ] || sources::unpack aws-ofi-nccl "$3" "$BUILD_WORK"
  build::nccl "$2" "$4"
  if [ "$1" = shared ]; then
    build::plugin "$3" "$4"
    plugin=$4/plugin/lib
  else
    plugin=$(find -L "$BUILD_IMAGE_PLUGIN" -name 'libnccl-net*.so' -printf '%h\n' -quit 2>/dev/null || true)
  fi
  build::tests "$tests" "$4" "$plugin"
  build::trim
  printf '%s\n' "kind=$1" "nccl=$2" "ofi=$3" "tests=$tests" "archs=$(env::get NCCL_GPU_ARCHS)" \
    "cuda=$(build::cuda_version)" >"$BUILD_WORK/stage/.facts"
  printf 'v%s\n' "$2" >"$BUILD_WORK/stage/.nccl_version"
}

# make of a project with CUDA code, through ccache where that is installed. The build directory has another name each
# time: CCACHE_BASEDIR makes its paths relative, so that later builds and other versions find what did not change.
build::make() { # DIRECTORY [ARGUMENT ...]
  local nvcc=$BUILD_CUDA/bin/nvcc arch flags=()
  if command -v ccache >/dev/null; then
    export CCACHE_DIR=$SLIPWAY_CACHE_DIR/ccache CCACHE_BASEDIR=$BUILD_WORK
    nvcc="ccache $nvcc"
  fi
  for arch in $(env::get NCCL_GPU_ARCHS); do
    flags+=("-gencode=arch=compute_$arch,code=sm_$arch")
  done
  build::run "$1" make -j "$(build::jobs)" "CUDA_HOME=$BUILD_CUDA" "NVCC=$nvcc" "NVCC_GENCODE=${flags[*]}" "${@:2}"
}

build::nccl() { # VERSION RELEASE
  local archs
  archs=$(env::get NCCL_GPU_ARCHS)
  build::phase "building NCCL $1 for sm_${archs// /, sm_} with $(build::jobs) jobs"
  build::make "$BUILD_WORK/nccl" src.build "PREFIX=$2"
  build::make "$BUILD_WORK/nccl" src.install "PREFIX=$BUILD_WORK/stage"
}

# Without --enable-platform-aws the plugin would lose its settings for each instance type.
build::plugin() { # VERSION RELEASE
  local source=$BUILD_WORK/aws-ofi-nccl
  build::phase "building the EFA plugin $1"
  build::run "$source" ./autogen.sh
  build::run "$source" ./configure "--prefix=$2/plugin" "--libdir=$2/plugin/lib" "--with-libfabric=$BUILD_EFA" \
    "--with-cuda=$BUILD_CUDA" "--with-mpi=$BUILD_MPI" --disable-tests --enable-platform-aws
  build::run "$source" make -j "$(build::jobs)"
  build::run "$source" make install "DESTDIR=$BUILD_WORK/destination"
  mv "$BUILD_WORK/destination$2/plugin" "$BUILD_WORK/stage/plugin"
}

# The programs find their own NCCL and plugin whatever the environment says: an old-style run path comes before
# LD_LIBRARY_PATH, and holds for what NCCL itself loads. nvcc takes it from NVCC_APPEND_FLAGS, whichever the makefile.
build::tests() { # VERSION RELEASE PLUGIN_DIRECTORY
  local path=$2/lib${3:+:$3}:$BUILD_MPI/lib:$BUILD_MPI/lib64:$BUILD_EFA/lib:$BUILD_EFA/lib64:$BUILD_CUDA/lib64
  build::phase "building nccl-tests $1"
  mkdir "$BUILD_WORK/stage/nccl-tests"
  NVCC_APPEND_FLAGS="-Xlinker --disable-new-dtags -Xlinker -rpath -Xlinker $path" \
    build::make "$BUILD_WORK/nccl-tests" MPI=1 "MPI_HOME=$BUILD_MPI" "NCCL_HOME=$BUILD_WORK/stage"
  cp "$BUILD_WORK"/nccl-tests/build/*_perf "$BUILD_WORK/stage/nccl-tests/"
}

# Removes what nothing loads: the static library (two fifths of a version) and libtool's files. The plugin's installer
# links the same objects under each name that some NCCL looks for: one file stays, the other names become links to it.
# An older plugin has a separate tuner without the network plugin's symbols: it stays as it is.
build::trim() {
  local directory=$BUILD_WORK/stage/plugin/lib file
  rm -f "$BUILD_WORK"/stage/lib/*_static.a "$directory"/*.la
  [ -f "$directory/libnccl-net-ofi.so" ] || return 0
  for file in "$directory"/libnccl-*.so; do
    if [ "${file##*/}" != libnccl-net-ofi.so ] && grep --quiet ncclNetPlugin_v "$file"; then
      ln --symbolic --force libnccl-net-ofi.so "$file"
    fi
  done
}
