#!/bin/bash
# list-containers.sh: the container images on the shared file system, and those that are not there yet.
#
# needs:       nothing but the shared file system
# permission:  any user
# on failure:  exit 1 when containers/ cannot be read
set -euo pipefail

list::main() {
  local here image status name state detail found=0
  here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
  for image in "$here"/*.sqsh; do
    [ -f "$image" ] || continue
    found=$((found + 1))
    printf '%-9s %6s  %s\n' ready "$(du --human-readable --apparent-size "$image" | cut -f 1)" "$image"
  done
  status=$here/../logs/container-downloads/status.tsv
  if [ -r "$status" ]; then
    while IFS=$'\t' read -r name state detail; do
      [ "$state" = ready ] || printf '%-9s %6s  %s (%s)\n' "$state" - "$name" "$detail"
    done <"$status"
  fi
  printf '%s images in %s\n' "$found" "$here"
}

list::main
