#!/bin/bash
# 60-slipway-nccl.sh (enroot's hooks.d): containers use the NCCL on the shared file system, as jobs on the node do.
#
# Adds its paths, and the settings that the container does not have already, to the container's environment. Not where
# the job says SLIPWAY_NCCL=image, and not in an image whose C library is older than the one NCCL was built with.
#
# needs:       ENROOT_ROOTFS and ENROOT_ENVIRON, which enroot sets; 60-slipway-nccl.fstab in mounts.d
# permission:  the user of the container
# how often:   at each start of a container
# on failure:  a warning; the container starts with its own NCCL
set -euo pipefail
readonly PROFILE=/etc/profile.d/nccl-shared.sh
readonly SETTINGS=(NCCL_SOCKET_IFNAME NCCL_NET FI_PROVIDER FI_EFA_USE_DEVICE_RDMA NCCL_PROTO NCCL_ALGO NCCL_MIN_NRINGS
  NCCL_DEBUG)

hook::value() { # NAME: of the container's environment, the last one holds
  sed --quiet "s/^$1=//p" "$ENROOT_ENVIRON" | tail --lines=1
}

# Whether the image's C library has every symbol that NCCL asks for.
hook::fits() { # glibc version, as 2.34
  local libc
  for libc in "$ENROOT_ROOTFS"/{lib,usr/lib}/*-linux-gnu/libc.so.6 "$ENROOT_ROOTFS"/lib64/libc.so.6; do
    if [ -r "$libc" ] && grep --quiet --text --fixed-strings "GLIBC_$1" "$libc"; then return 0; fi
  done
  return 1
}

# The container keeps its own NCCL. Where it sets no LD_LIBRARY_PATH, pyxis would give it the job's, which begins with the
# shared NCCL in every job from a login shell, and that directory is mounted in each container.
hook::keep_own() {
  local directory kept=''
  if [ -z "$(hook::value LD_LIBRARY_PATH)" ]; then
    while IFS= read -r -d : directory; do
      [[ -z $directory || $directory == */nccl/versions/* || $directory == */nccl/current/* ]] || kept+=:$directory
    done <<<"${LD_LIBRARY_PATH-}:"
    printf 'LD_LIBRARY_PATH=%s\n' "${kept#:}" >>"$ENROOT_ENVIRON"
  fi
  printf 'NCCL_HOME=\n' >>"$ENROOT_ENVIRON"
}

hook::main() {
  local name needed
  if [ "${SLIPWAY_NCCL:-$(hook::value SLIPWAY_NCCL)}" = image ]; then
    hook::keep_own
    return 0
  fi
  # From here on these are the container's, not the job's.
  local job_libraries=${LD_LIBRARY_PATH-}
  LD_LIBRARY_PATH=$(hook::value LD_LIBRARY_PATH)
  LIBRARY_PATH=$(hook::value LIBRARY_PATH)
  for name in "${SETTINGS[@]}"; do unset "$name"; done
  # shellcheck source-path=SCRIPTDIR source=../nccl-shared.sh
  source "$PROFILE"
  [ -r "${NCCL_HOME:-}/.complete" ] || return 0
  needed=$(sed --quiet 's/^glibc=//p' "$NCCL_HOME/.complete")
  if ! hook::fits "$needed"; then
    printf 'slipway: this image is older than glibc %s: it keeps its own NCCL, not %s\n' "$needed" "$NCCL_HOME" >&2
    LD_LIBRARY_PATH=$job_libraries
    hook::keep_own
    return 0
  fi
  printf '%s=%s\n' NCCL_HOME "$NCCL_HOME" NCCL_VERSION "$NCCL_VERSION" \
    LD_LIBRARY_PATH "$LD_LIBRARY_PATH" LIBRARY_PATH "$LIBRARY_PATH" >>"$ENROOT_ENVIRON"
  for name in "${SETTINGS[@]}"; do
    if [[ -v $name ]] && ! grep --quiet "^$name=" "$ENROOT_ENVIRON"; then
      printf '%s=%s\n' "$name" "${!name}" >>"$ENROOT_ENVIRON"
    fi
  done
}

hook::end() { # EXIT_STATUS
  [ "$1" -eq 0 ] || printf 'slipway: the shared NCCL was not added to this container\n' >&2
  exit 0
}

trap 'hook::end "$?"' EXIT
hook::main
