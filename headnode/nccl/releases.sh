# shellcheck shell=bash
# releases.sh: the built versions below PREFIX/nccl, which one is in use, and the way back. Sourced by
# install-nccl-shared.sh.
#
#   versions/NCCL_OFI/     one version: lib, include, plugin, nccl-tests; .complete (facts) once it was checked
#   versions/NCCL_tests/   NCCL and nccl-tests for acceptance alone
#   current                -> versions/..., what setup-nccl-env.sh resolves; absent as long as jobs use their image's
#   nccl-tests             -> versions/.../nccl-tests, the programs that acceptance and /opt/nccl-tests/build use
#   .nccl_version          -> current/.nccl_version
#   .history               the versions that were in use, the newest last

readonly RELEASES_HISTORY=50 # lines kept
NCCL_SHARED=''               # PREFIX/nccl, set by releases::home

releases::home() { # PREFIX: sets NCCL_SHARED
  [[ $1 =~ ^(/[A-Za-z0-9._-]+)+$ && -d $1 ]] ||
    log::die "'$1': not a directory with an absolute path of plain characters" \
      'give the mount point of the shared file system, such as /fsx'
  NCCL_SHARED=$1/nccl
}

releases::fact() { # RELEASE NAME
  sed --quiet "s/^$2=//p" "$1/.complete"
}

releases::name() { # KIND NCCL_VERSION OFI_VERSION
  if [ "$1" = tests ]; then
    printf 'NCCL %s and nccl-tests for acceptance' "$2"
  else
    printf 'NCCL %s with the plugin %s' "$2" "$3"
  fi
}

# Prints the whole release of these versions, for these GPUs and this CUDA; else the place for a new one.
releases::find() { # KIND NCCL_VERSION OFI_VERSION
  local base=$NCCL_SHARED/versions/${2}_$3 release number=1 wanted
  [ "$1" = shared ] || base=$NCCL_SHARED/versions/${2}_tests
  wanted="$(env::get NCCL_GPU_ARCHS)/$(build::cuda_version)"
  release=$base
  # Jobs run with a whole release, so it is never changed: other GPUs or another CUDA get a release next to it.
  while [ -f "$release/.complete" ] &&
    [ "$(releases::fact "$release" archs)/$(releases::fact "$release" cuda)" != "$wanted" ]; do
    number=$((number + 1))
    release=$base.$number
  done
  printf '%s' "$release"
}

# Loads what was built, in a fresh process, and marks the release as whole.
releases::check() { # KIND NCCL_VERSION OFI_VERSION RELEASE
  local said status=0 missing program libraries=$4/lib:$BUILD_EFA/lib:$BUILD_EFA/lib64
  local -a arguments=("$4/lib/libnccl.so.2" "${2%-*}")
  [ "$1" = tests ] || arguments+=("$4/plugin/lib")
  said=$(LD_LIBRARY_PATH=$libraries timeout 60 python3 "$SLIPWAY_BUNDLE/headnode/nccl/check.py" "${arguments[@]}") ||
    status=$?
  [ "$status" -eq 0 ] || log::die "the new build does not load: ${said:-no answer}" "read $BUILD_LOG"
  for program in "$4"/nccl-tests/*_perf; do
    missing=$(env --unset=LD_LIBRARY_PATH ldd "$program" | grep 'not found' || true)
    [ -z "$missing" ] || log::die "$program: $missing" 'the library it needs is not on this node'
  done
  log::info "loaded: ${said%%$'\n'*}"
  { cat "$4/.facts" && printf '%s\n' "${said##*$'\n'}" "built=$(date --utc +%Y-%m-%dT%H:%M:%SZ)"; } |
    file::put - "$4/.complete" 0644
}

# Puts a whole release in use: every link by one rename; the environment last, since nodes look for that file.
releases::use() { # KIND RELEASE
  local name=${2##*/}
  if [ "$1" = tests ]; then
    # Where jobs use a shared version, its programs stay the ones that acceptance measures.
    if [ ! -e "$NCCL_SHARED/current/nccl-tests" ]; then
      file::link "versions/$name/nccl-tests" "$NCCL_SHARED/nccl-tests"
    fi
    return 0
  fi
  releases::remember "$name"
  file::link "versions/$name" "$NCCL_SHARED/current"
  file::link current/nccl-tests "$NCCL_SHARED/nccl-tests"
  file::link current/.nccl_version "$NCCL_SHARED/.nccl_version"
  file::put "$SLIPWAY_BUNDLE/headnode/user/setup-nccl-env.sh" "$NCCL_SHARED/setup-nccl-env.sh" 0644
  file::put "$SLIPWAY_BUNDLE/compute/nccl-shared.sh" /etc/profile.d/nccl-shared.sh 0644
  log::info "NCCL $(cat "$NCCL_SHARED/.nccl_version") is in use: $NCCL_SHARED/current"
}

releases::remember() { # NAME
  local history=$NCCL_SHARED/.history
  [ "$(tail --lines=1 "$history" 2>/dev/null)" != "$1" ] || return 0
  {
    tail --lines=$((RELEASES_HISTORY - 1)) "$history" 2>/dev/null || true
    printf '%s\n' "$1"
  } | file::put - "$history" 0644
}

releases::in_use() {
  local target
  target=$(readlink "$NCCL_SHARED/current" || true)
  printf '%s' "${target##*/}"
}

# Prints the release that was in use before the present one.
releases::before() {
  local now name before=''
  now=$(releases::in_use)
  while IFS= read -r name; do
    if [ "$name" != "$now" ] && [ -f "$NCCL_SHARED/versions/$name/.complete" ]; then before=$name; fi
  done < <(cat "$NCCL_SHARED/.history" 2>/dev/null)
  [ -n "$before" ] ||
    log::die "there is no version to go back to from '${now:-none}'" "list the versions: bash $0 --list"
  printf '%s' "$NCCL_SHARED/versions/$before"
}

releases::list() { # PREFIX
  local release mark plugin key facts form='%-3s %-28s %-10s %-10s %-10s %-14s %-6s %s\n'
  releases::home "$1"
  # shellcheck disable=SC2059  # one format for every line
  printf "$form" '' VERSION NCCL PLUGIN TESTS 'GPU CODE' CUDA BUILT
  for release in "$NCCL_SHARED"/versions/*/; do
    release=${release%/}
    [ -f "$release/.complete" ] || continue
    mark='' plugin=image facts=()
    [ "${release##*/}" != "$(releases::in_use)" ] || mark='*'
    [ "$(releases::fact "$release" kind)" = tests ] || plugin=$(releases::fact "$release" ofi)
    for key in tests archs cuda built; do facts+=("$(releases::fact "$release" "$key")"); done
    # shellcheck disable=SC2059
    printf "$form" "$mark" "${release##*/}" "$(releases::fact "$release" nccl)" "$plugin" "${facts[@]}"
  done
  printf '* in use. No job uses a version any more? Remove it: sudo rm -r %s/versions/VERSION\n' "$NCCL_SHARED"
}
