# shellcheck shell=bash
# retry.sh: run a command again, with a growing pause. Sourced by all.sh.

retry::run() { # TRIES FIRST_PAUSE_S COMMAND [ARGUMENT ...]: the pause doubles, with up to a second of jitter
  local tries=$1 pause=$2 try status=0
  shift 2
  for ((try = 1; try <= tries; try++)); do
    status=0
    "$@" || status=$?
    [ "$status" -ne 0 ] || return 0
    [ "$try" -lt "$tries" ] || break
    log::warn "try $try of $tries failed with exit $status, next one in $pause s: $1"
    sleep "$pause.$((RANDOM % 10))"
    pause=$((pause * 2))
  done
  return "$status"
}
