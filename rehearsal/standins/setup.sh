#!/usr/bin/env bash
# Makes the tools of the local hosts in one directory: the AWS CLI, the nccl-tests stand-in, the software mirror's files,
# and what an image brings to build NCCL with.
#
# usage:       rehearsal/standins/setup.sh DIRECTORY
# needs:       /usr/bin/python3, a Python with pip, mpicc, Debian's prometheus and prometheus-node-exporter
# permission:  any user who may write DIRECTORY
# how often:   at every set-up; a part whose inputs are unchanged is left alone
# on failure:  exit 1 (3: something of this machine is missing) with a line that says what; a part made before stays whole
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
readonly HERE ROOT
readonly SYSTEM_PYTHON=/usr/bin/python3
readonly SOFTWARE_TABLE=$ROOT/nodes/software.tsv
readonly NCCL_SOURCES=$HERE/nccl_sources/make.py

standins::fault() {
  printf 'setup: FAULT %s\n' "$1" >&2
  exit "${2:-1}"
}

# Makes a part in a fresh directory next to its place and moves it there whole; skips it when its stamp is unchanged.
standins::part() { # NAME STAMP FUNCTION
  local place=$TARGET/$1 fresh=$TARGET/.$1.new
  if [[ -f $place/.stamp && $(<"$place/.stamp") == "$2" ]]; then
    printf 'setup: %s is up to date\n' "$place"
    return
  fi
  printf 'setup: %s ...\n' "$place"
  rm -rf "$fresh"
  mkdir -p "$fresh"
  "$3" "$fresh"
  printf '%s\n' "$2" >"$fresh/.stamp"
  rm -rf "$place"
  mv -T "$fresh" "$place"
}

standins::hash() { # FILE...
  cat "$@" | sha256sum | cut -c 1-16
}

# ------------------------------------------------------------------------------------------------------------ AWS CLI

standins::pip() {
  local candidate
  for candidate in "$ROOT/.venv-rehearsal/bin/python" "$SYSTEM_PYTHON" python3; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  standins::fault "no Python with pip. Hint: run 'make setup' first, or apt-get install python3-pip" 3
}

standins::aws() { # DIRECTORY
  local python version
  [[ -x $SYSTEM_PYTHON ]] || standins::fault "$SYSTEM_PYTHON is missing: the hosts run it. Hint: apt-get install python3" 3
  python=$(standins::pip)
  version=$("$SYSTEM_PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  "$python" -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --target "$1" --only-binary=:all: \
    --implementation cp --python-version "$version" -r "$HERE/requirements-awscli.txt"
  # The hosts see it read-only: compiled once here, so that each start is quick.
  "$SYSTEM_PYTHON" -m compileall -q "$1" >/dev/null || true
}

# ---------------------------------------------------------------------------------------------------------- nccl-tests

standins::nccl_tests() { # DIRECTORY
  local mpicc program collective=0
  mpicc=$(command -v mpicc) || standins::fault 'mpicc is missing. Hint: apt-get install libopenmpi-dev gcc' 3
  for program in all_reduce_perf alltoall_perf; do
    # -rdynamic: Open MPI must find the sched_yield of the program.
    "$mpicc" -std=gnu11 -O3 -Wall -Wextra -Werror -rdynamic "-DCOLLECTIVE=$collective" -o "$1/$program" "$HERE/nccl_tests.c"
    collective=$((collective + 1))
  done
}

# -------------------------------------------------------------------------------------------------------------- mirror

# The name of the upstream file that software.tsv pins for NAME, without .tar.gz.
standins::release() { # NAME
  local name version sha256 url
  while IFS=$'\t' read -r name version sha256 url; do
    if [[ $name == "$1" && -n $version && -n $sha256 ]]; then
      url=${url##*/}
      printf '%s\n' "${url%.tar.gz}"
      return
    fi
  done <"$SOFTWARE_TABLE"
  standins::fault "$SOFTWARE_TABLE has no line of $1"
}

# A tarball with upstream's layout, made from this machine's programs; the same bytes each time.
standins::tarball() { # DIRECTORY RELEASE SOURCE=NAME ...
  local directory=$1 release=$2 pair source
  shift 2
  mkdir -p "$directory/.work/$release"
  for pair in "$@"; do
    source=$(command -v "${pair%%=*}") || standins::fault "${pair%%=*} is missing. Hint: apt-get install prometheus prometheus-node-exporter" 3
    install -m 0755 "$source" "$directory/.work/$release/${pair#*=}"
  done
  tar --create --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --directory "$directory/.work" "$release" |
    gzip --no-name -1 >"$directory/$release.tar.gz"
  rm -rf "$directory/.work"
}

standins::mirror() { # DIRECTORY
  local prometheus node_exporter
  prometheus=$(standins::release prometheus)
  node_exporter=$(standins::release node_exporter)
  standins::tarball "$1" "$prometheus" prometheus=prometheus promtool=promtool
  standins::tarball "$1" "$node_exporter" prometheus-node-exporter=node_exporter
  "$HERE/gpu-packages.sh" "$1"
  (cd "$1" && sha256sum -- *.tar.gz *.deb >SHA256SUMS)
  # The defaults of the settings, then the plugin that the head node's guide builds and an older NCCL to change to.
  "$SYSTEM_PYTHON" "$NCCL_SOURCES" sources "$1"
  "$SYSTEM_PYTHON" "$NCCL_SOURCES" sources "$1" nccl=2.27.7-1 aws-ofi-nccl=1.17.2
}

standins::mirror_stamp() {
  { standins::hash "$SOFTWARE_TABLE" "$0" "$HERE/gpu-packages.sh" "$HERE/nvidia-container-cli" && standins::nccl_sources_hash && for program in prometheus promtool prometheus-node-exporter; do
    command -v "$program" && stat --format '%s %Y' "$(command -v "$program")"
  done; } 2>/dev/null | sha256sum | cut -c 1-16
}

# --------------------------------------------------------------------------------------------------------------- pyxis

standins::pyxis() { # DIRECTORY
  [[ -e /usr/include/slurm/spank.h ]] || standins::fault 'slurm/spank.h is missing. Hint: apt-get install libslurm-dev gcc' 3
  gcc -O2 -Wall -Wextra -Werror -shared -fPIC -o "$1/spank_pyxis.so" "$HERE/spank_pyxis.c"
}

# --------------------------------------------------------------------------------------------------------------- image

standins::nccl_sources_hash() {
  find "$HERE/nccl_sources" "$HERE/nccl_tests.c" -type f -not -name '*.pyc' -print0 | sort --zero-terminated | xargs -0 cat | sha256sum | cut -c 1-16
}

standins::image() { # DIRECTORY
  command -v mpicc >/dev/null || standins::fault 'mpicc is missing. Hint: apt-get install libopenmpi-dev gcc' 3
  "$SYSTEM_PYTHON" "$NCCL_SOURCES" image "$1"
}

# ---------------------------------------------------------------------------------------------------------------- main

(($# == 1)) || standins::fault "usage: $0 DIRECTORY" 2
export PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$1"
TARGET=$(cd "$1" && pwd)
readonly TARGET
standins::part aws "$(standins::hash "$HERE/requirements-awscli.txt" "$0") $("$SYSTEM_PYTHON" --version 2>&1)" standins::aws
standins::part nccl-tests "$(standins::hash "$HERE/nccl_tests.c" "$0") $(mpicc --version 2>/dev/null | head -n 1)" standins::nccl_tests
standins::part mirror "$(standins::mirror_stamp)" standins::mirror
standins::part pyxis "$(standins::hash "$HERE/spank_pyxis.c" "$0") $(gcc --version | head -n 1)" standins::pyxis
standins::part image "$(standins::nccl_sources_hash) $(mpicc --version 2>/dev/null | head -n 1)" standins::image
