#!/bin/bash
# Installs nvidia-container-cli where the image lacks it: enroot gives a container its GPUs through that program.
# needs: the pinned libnvidia-container packages or a mirror; python3; a node without GPUs needs nothing
# permission: root
# how often: once a node; safe to run again: a program that the image brings is left alone
# on failure: report
# timeout: 300 s
# takes: about 2.0 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

# enroot's hook 98-nvidia.sh runs nvidia-container-cli for each image that sets NVIDIA_VISIBLE_DEVICES, as every NGC image
# does, and the container does not start without it (enroot 3.4 to 4.1, conf/hooks/98-nvidia.sh). ParallelCluster's
# cookbook does not install it (3.12: recipes/install/nvidia_install.rb, resources/enroot).
# NVIDIA's Debian packages are unpacked instead of installed: the same two files with a checksum serve Ubuntu and Amazon
# Linux, whose libc, libcap and libseccomp they need (libnvidia-container1 1.19.1: libc6 >= 2.27).
readonly CONTAINER_CLI=/usr/bin/nvidia-container-cli
readonly CONTAINER_HOME=$SLIPWAY_SOFTWARE_DIR/libnvidia-container
readonly CONTAINER_LIBRARIES=/etc/ld.so.conf.d/slipway-libnvidia-container.conf
readonly CONTAINER_PACKAGES=(libnvidia-container1 libnvidia-container-tools)
readonly CONTAINER_TIMEOUT_S=20

# Unpacks both packages to CONTAINER_HOME/SHA12 and points CONTAINER_HOME/current to it.
gpu_containers::unpack() {
  local -A pin=()
  local package files=() key='' release work
  for package in "${CONTAINER_PACKAGES[@]}"; do
    software::find pin "$package" ||
      log::die "software.tsv has no line of $package" "add one to $SLIPWAY_SITE_SOFTWARE"
    software::download pin
    files+=("${pin[file]}")
    key+=${pin[sha256]:0:6}
  done
  release=$CONTAINER_HOME/$key
  mkdir -p "$CONTAINER_HOME"
  if [ ! -d "$release" ]; then
    rm -rf "$CONTAINER_HOME"/.unpack.*
    work=$(mktemp -d "$CONTAINER_HOME/.unpack.XXXXXX")
    python3 -I "$SLIPWAY_BUNDLE/compute/unpack-deb.py" "$work" "${files[@]}" ||
      log::die "the packages of libnvidia-container cannot be unpacked (see the lines above)" \
        "the files in the mirror are not NVIDIA's packages"
    chmod 0755 "$work"
    mv --no-target-directory "$work" "$release"
  fi
  file::link "$key" "$CONTAINER_HOME/current"
}

gpu_containers::main() {
  local program=$CONTAINER_HOME/current$CONTAINER_CLI found
  env::load "$SLIPWAY_NODE_ENV"
  if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
    log::info "no GPU on this node: containers need no nvidia-container-cli"
    return 0
  fi
  found=$(command -v nvidia-container-cli) || found=''
  if [ -n "$found" ] && [ "$(readlink "$found")" != "$program" ]; then
    log::info "the image has $found: nothing to install"
    return 0
  fi
  gpu_containers::unpack
  dirname "$CONTAINER_HOME"/current/usr/lib/*/libnvidia-container.so.1 | file::put - "$CONTAINER_LIBRARIES" 0644
  # The cache is made anew only where the list of directories is newer: the second run changes nothing.
  [ /etc/ld.so.cache -nt "$CONTAINER_LIBRARIES" ] || ldconfig
  file::link "$program" "$CONTAINER_CLI"
  timeout --kill-after=5 "$CONTAINER_TIMEOUT_S" "$CONTAINER_CLI" --version ||
    log::die "$CONTAINER_CLI does not start (see the lines above)" \
      "run 'ldd $CONTAINER_CLI' on this node: no container can use a GPU until it starts"
}

gpu_containers::main
