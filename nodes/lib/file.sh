# shellcheck shell=bash
# file.sh: whole files, put in place by one rename, and only when they differ. Sourced by all.sh.

# Puts a whole file in place: written next to its destination, then renamed over it. Equal content is left alone, so a
# second run changes nothing. SOURCE "-" reads standard input.
file::put() { # SOURCE DESTINATION MODE [OWNER:GROUP]
  local source=$1 destination=$2 mode=$3 owner=${4:-root:root} fresh
  fresh=$(file::fresh "$destination")
  if [ "$source" != - ] && file::same "$source" "$destination" "$owner" "$mode"; then return 0; fi
  [ "$source" != - ] || source=/dev/stdin
  # install makes a new file (O_EXCL) and never writes into an existing file or link: other users may write to the
  # directory (containers/ of /fsx).
  install --owner="${owner%:*}" --group="${owner#*:}" --mode="$mode" --no-target-directory "$source" "$fresh" ||
    file::put_failed "$destination" "$fresh"
  if [ "$1" = - ] && file::same "$fresh" "$destination" "$owner" "$mode"; then
    rm -f "$fresh"
    return 0
  fi
  # Joined with && because callers test this function, which switches "set -e" off inside it.
  if ! { sync "$fresh" && mv --force --no-target-directory "$fresh" "$destination"; }; then
    file::put_failed "$destination" "$fresh"
  fi
  log::info "wrote $destination"
}

# Whether the destination is a file of this owner with the content of SOURCE; then it gets the mode. A file of another
# owner is replaced even when it is equal: its owner may have it open.
file::same() { # SOURCE DESTINATION OWNER:GROUP MODE
  local facts
  [ -f "$2" ] && [ ! -L "$2" ] || return 1
  facts=$(stat --format '%U:%G %a' "$2")
  [ "${facts% *}" = "$3" ] && cmp --silent "$1" "$2" || return 1
  [ "$((8#${facts#* }))" -eq "$((8#$4))" ] || chmod "$4" "$2"
}

# Prints the temporary name of a file or directory, unique to this process. Removes the leftovers of ended processes and
# what has this name already.
file::fresh() { # DESTINATION
  local left own=${1%/*}/.${1##*/}.slipway-new.$$ gone=()
  for left in "${1%/*}/.${1##*/}.slipway-new."*; do
    [ -e "$left" ] || [ -L "$left" ] || continue # none: the pattern itself
    if [ "$left" = "$own" ] || [ ! -d "/proc/${left##*.}" ]; then gone+=("$left"); fi
  done
  # By one process: another user may have made any number of them.
  [ "${#gone[@]}" -eq 0 ] || printf '%s\0' "${gone[@]}" | xargs --null rm -rf -- || true
  printf '%s' "$own"
}

file::put_failed() { # DESTINATION TEMPORARY_FILE
  rm -f "$2" || true
  log::die "cannot write $1" "is it read-only or full? see 'df -h ${1%/*}' and 'ls -ld ${1%/*}'"
}

file::mode() { # PATH MODE: changes it only where it differs
  local actual
  actual=$(stat --format '%a' "$1")
  [ "$((8#$actual))" -eq "$((8#$2))" ] || chmod "$2" "$1"
}

# Makes the file of a lock. Only root may open it: a process that can open a file, even for reading, can lock it.
file::lock() { # PATH
  [ -d "${1%/*}" ] || mkdir -p "${1%/*}"
  (umask 077 && : >>"$1")
  chmod 0600 "$1"
}

# Makes a directory with MODE where it is absent. An existing directory keeps its owner and mode: they are the user's.
file::directory() { # PATH MODE [OWNER:GROUP]
  local fresh owner
  if [ -e "$1" ]; then
    [ -d "$1" ] || log::die "$1 is there, but is no directory" "move it away and run the set-up again"
    return 0
  fi
  fresh=$(file::fresh "$1")
  # Make it under a temporary name first, so that a kill never leaves the right name with the wrong mode.
  owner=${3:-root:root}
  if ! { install --directory --owner="${owner%:*}" --group="${owner#*:}" --mode="$2" "$fresh" &&
    mv --no-target-directory "$fresh" "$1"; }; then
    rmdir "$fresh" || true
    [ -d "$1" ] || file::put_failed "$1" "$fresh" # there: another process made it at the same moment
  fi
  log::info "made $1"
}

# Makes a directory that is one account's alone, in a directory that every user writes to. What another account has put
# there is moved aside, since its content cannot be trusted.
file::private() { # PATH UID:GID
  local fresh
  if [ -d "$1" ] && [ ! -L "$1" ] && [ "$(stat --format %u "$1")" = "${2%:*}" ]; then
    file::mode "$1" 0700
    return 0
  fi
  fresh=$(file::fresh "$1")
  if ! { (umask 077 && mkdir "$fresh") && chown "$2" "$fresh"; }; then file::put_failed "$1" "$fresh"; fi
  if [ -e "$1" ] || [ -L "$1" ]; then
    log::warn "$1 belonged to uid $(stat --format %u "$1") instead of ${2%:*}: moved to $1.foreign"
    rm -rf "$1.foreign"
    mv --no-target-directory "$1" "$1.foreign"
  fi
  mv --no-target-directory "$fresh" "$1" || file::put_failed "$1" "$fresh"
}

file::link() { # TARGET LINK: by one rename, and only when the target differs
  local fresh
  [ "$(readlink "$2" || true)" != "$1" ] || return 0
  fresh=$(file::fresh "$2")
  ln --symbolic --force --no-dereference "$1" "$fresh"
  mv --force --no-target-directory "$fresh" "$2"
  log::info "linked $2 to $1"
}

# A template of the bundle, filled from node.env and KEY=VALUE pairs; put in place whole.
file::render() { # TEMPLATE DESTINATION MODE [KEY=VALUE ...]
  local text
  text=$(python3 -I -S "$SLIPWAY_BUNDLE/nodes/lib/render.py" "$SLIPWAY_BUNDLE/templates/$1" \
    "$SLIPWAY_NODE_ENV" "${@:4}") || return
  printf '%s\n' "$text" | file::put - "$2" "$3"
}
