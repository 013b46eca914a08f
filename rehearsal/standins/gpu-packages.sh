#!/usr/bin/env bash
# Makes the packages of libnvidia-container as a software mirror holds them, with the stand-in of nvidia-container-cli.
#
# usage:       rehearsal/standins/gpu-packages.sh DIRECTORY
# needs:       dpkg-deb
# permission:  any user who may write DIRECTORY
# how often:   at every set-up; the same bytes each time
# on failure:  exit 1; 3: nothing can be made in DIRECTORY
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly HERE TABLE=$HERE/../../nodes/software.tsv
export SOURCE_DATE_EPOCH=0 # dpkg-deb's time of all files

packages::make() { # DIRECTORY NAME VERSION URL
  local work
  work=$(mktemp -d "$1/.work.XXXXXX") || {
    printf 'setup: FAULT %s takes no folder (see above). Hint: make room there\n' "$1" >&2
    exit 3
  }
  mkdir -p "$work"/{DEBIAN,usr/bin,usr/lib/x86_64-linux-gnu}
  printf 'Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: none\nDescription: stand-in\n' "$2" "$3" >"$work/DEBIAN/control"
  if [ "$2" = libnvidia-container-tools ]; then
    install -m 0755 "$HERE/nvidia-container-cli" "$work/usr/bin/"
  else
    : >"$work/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1"
  fi
  chmod -R u=rwX,go=rX "$work"
  dpkg-deb --root-owner-group -Zxz --build "$work" "$1/${4##*/}" >/dev/null
  rm -rf "$work"
}

while IFS=$'\t' read -r name version _ url; do
  [[ $name != libnvidia-container* ]] || packages::make "${1:?the directory is missing}" "$name" "$version" "$url"
done <"$TABLE"
