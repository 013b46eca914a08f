# shellcheck shell=bash
# unit.sh: systemd units. Sourced by all.sh.

readonly UNIT_TIMEOUT_S=30

# Enables and starts a unit whose files are in place. It is restarted only if one of FILES changed since the last start.
# The note of that is written after the start, so a killed run is repeated.
unit::ensure() { # UNIT FILE ...
  local unit=$1 note=$SLIPWAY_STATE_DIR/units/$1.sha256 wanted
  shift
  wanted=$(sha256sum -- "$@")
  mkdir -p "${note%/*}"
  if systemctl is-active --quiet "$unit" && systemctl is-enabled --quiet "$unit" &&
    [ "$wanted" = "$(cat "$note" 2>/dev/null)" ]; then
    return 0
  fi
  unit::enable "$unit"
  timeout --kill-after=5 "$UNIT_TIMEOUT_S" systemctl restart "$unit" || unit::fail "$unit" "did not start"
  # A timer has no process that could die.
  [[ $unit == *.timer ]] || unit::wait_active "$unit"
  printf '%s\n' "$wanted" | file::put - "$note" 0644
  log::info "started $unit"
}

# The unit starts at each boot. systemd reads its files anew, and those of a timer's service, only where it must: reading
# those of all units takes longer than most steps.
unit::enable() { # UNIT
  local stale
  systemctl enable --quiet --no-reload "$1"
  stale=$(systemctl show --property NeedDaemonReload --property LoadState "$1" "${1%.*}.service")
  [[ ! $stale =~ =(yes|not-found) ]] || systemctl daemon-reload
}

# A service that dies at once is still "active" for a moment: it has to be active twice, a while apart.
unit::wait_active() { # UNIT
  local end=$((SECONDS + UNIT_TIMEOUT_S)) good=0 state
  while [ "$SECONDS" -lt "$end" ]; do
    state=$(systemctl show --property ActiveState --property SubState "$1")
    case $state in
      *ActiveState=active*) good=$((good + 1)) ;;
      *ActiveState=failed* | *SubState=auto-restart*) break ;;
      *) good=0 ;;
    esac
    [ "$good" -lt 2 ] || return 0
    sleep 0.3
  done
  unit::fail "$1" "is not running"
}

unit::fail() { # UNIT WHAT
  # journald may not have read the unit's last words yet.
  timeout 5 journalctl --sync 2>/dev/null || true
  journalctl --unit "$1" --lines 10 --no-pager --output cat 2>/dev/null || true
  log::die "$1 $2 (see the lines above)" "run 'systemctl status $1' and 'journalctl -u $1' on this node"
}

unit::wait_http() { # UNIT URL: until the service answers
  local end=$((SECONDS + UNIT_TIMEOUT_S))
  while [ "$SECONDS" -lt "$end" ]; do
    if curl --fail --silent --max-time 2 --noproxy '*' --output /dev/null "$2"; then return 0; fi
    sleep 0.2
  done
  unit::fail "$1" "does not answer on $2 after $UNIT_TIMEOUT_S s"
}

unit::user() { # NAME: a system account without a shell
  if ! getent passwd "$1" >/dev/null; then
    useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$1"
    log::info "made the account $1"
  fi
}
