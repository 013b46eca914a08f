#!/bin/bash
# list-containers.sh: the container images on the shared file system, and those that are not there yet.
#
#   One line an image: state, size, the first 12 digits of the manifest's digest, age of the import, path. For a missing
#   image, the newest state that an import of any user reported.
#
# needs:       nothing but the shared file system
# permission:  any user
# how often:   at any time; it changes nothing
# on failure:  exit 1 when containers/ cannot be read
set -euo pipefail

readonly FORMAT='%-9s %7s  %-12s %5s  %s\n'

# What the importer noted of an image, if the note was written for this very file: the value of KEY.
list::info() { # IMAGE KEY
  local note=${1%/*}/.${1##*/}.info line found=''
  [[ -f $note && -r $note ]] || return 0
  grep --quiet --line-regexp "size=$(stat --format %s "$1")" "$note" || return 0
  while IFS= read -r line; do
    [[ $line != "$2="* ]] || found=${line#*=}
  done <"$note"
  printf '%s' "${found//[^A-Za-z0-9:._-]/}"
}

list::age() { # SECONDS
  if [ "$1" -ge 86400 ]; then
    printf '%sd' "$(($1 / 86400))"
  elif [ "$1" -ge 3600 ]; then
    printf '%sh' "$(($1 / 3600))"
  else
    printf '%smin' "$(($1 / 60))"
  fi
}

list::image() { # FILE
  local digest size age
  age=$(list::age $(($(date +%s) - $(stat --format %Y "$1"))))
  digest=$(list::info "$1" digest)
  digest=${digest#sha256:}
  size=$(du --human-readable --apparent-size "$1")
  # shellcheck disable=SC2059  # one format for every line
  printf "$FORMAT" ready "${size%%[[:space:]]*}" "${digest:0:12}" "$age" "${1//[[:cntrl:]]/?}"
}

# Lines NAME, STATE, DETAIL, TIME of the users' tables: the newest of each image.
list::reported() { # DIRECTORY
  local table tables=()
  for table in "$1"/status.tsv "$1"/status.*.tsv; do
    [[ ! -f $table || ! -r $table || -L $table ]] || tables+=("$table")
  done
  [ "${#tables[@]}" -eq 0 ] ||
    awk -F '\t' '$4 >= when[$1] { when[$1] = $4; line[$1] = $0 } END { for (name in line) print line[name] }' \
      "${tables[@]}" | sort
}

list::main() {
  local here image name state detail found=0
  here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
  for image in "$here"/*.sqsh "$here"/*.sif; do
    [ -f "$image" ] || continue
    found=$((found + 1))
    list::image "$image"
  done
  while IFS=$'\t' read -r name state detail _; do
    [[ $state =~ ^(waiting|importing|failed)$ ]] || continue
    # shellcheck disable=SC2059
    printf "$FORMAT" "$state" - '' - "${name//[[:cntrl:]]/?} (${detail//[[:cntrl:]]/ })"
  done < <(list::reported "$here/../logs/container-downloads")
  printf '%s images in %s\n' "$found" "$here"
}

list::main
