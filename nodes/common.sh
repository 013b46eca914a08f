# shellcheck shell=bash
# common.sh: what the node scripts share. It is sourced, never run, and changes nothing by being sourced.
#
#   log::    lines that start with "slipway:", on the screen and in the log of the whole
#   env::    node.env, read as data: nothing in it is ever evaluated
#   file::   whole files, put in place by one rename, and only when they differ
#   retry::  a command again, with a growing pause
#   fetch::  one file from s3:// or http(s)://, in bounded time
#   software:: what software.tsv pins
#   unit::   systemd units
#   background:: the state of work that goes on after the setup
#   steps::  runs a directory of numbered steps
set -euo pipefail
umask 022
export PATH="/usr/local/sbin:/usr/local/bin:/opt/slurm/bin:${PATH:-/usr/sbin:/usr/bin:/sbin:/bin}"
export HOME="${HOME:-/root}"
# ParallelCluster's Slurm finds its own configuration; another build of the same commands needs to be told.
if [ -z "${SLURM_CONF:-}" ] && [ -f /opt/slurm/etc/slurm.conf ]; then
  export SLURM_CONF=/opt/slurm/etc/slurm.conf
fi

SLIPWAY_BUNDLE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly SLIPWAY_BUNDLE
readonly SLIPWAY_NODE_ENV=${SLIPWAY_NODE_ENV:-/etc/slipway/node.env}
readonly SLIPWAY_SITE_SOFTWARE=/etc/slipway/software.tsv
readonly SLIPWAY_LOG_DIR=/var/log/slipway
readonly SLIPWAY_STATE_DIR=/var/lib/slipway
readonly SLIPWAY_SOFTWARE_DIR=/opt/slipway/software
readonly SLIPWAY_CACHE_DIR=/var/cache/slipway

readonly FETCH_TIMEOUT_S=120
readonly FETCH_TRIES=4
readonly FETCH_MAX_BYTES=2147483648
readonly UNIT_TIMEOUT_S=30
readonly SETUP_LOCK_TIMEOUT_S=900

# ---------------------------------------------------------------------------------------------------------------- log

log::info() { # MESSAGE
  printf 'slipway: %s\n' "$1"
}

log::warn() { # MESSAGE
  printf 'slipway: WARNING %s\n' "$1" >&2
}

# Ends a step. The runner finds the hint in the step's log and repeats it in the line that reports the fault; an EXIT trap
# finds both in LOG_REASON and LOG_HINT.
LOG_REASON='' LOG_HINT=''
log::die() { # MESSAGE HINT
  # shellcheck disable=SC2034  # for who sources this
  LOG_REASON=$1 LOG_HINT=$2
  printf 'slipway: %s\nslipway-hint: %s\n' "$1" "$2" >&2
  exit 1
}

# ---------------------------------------------------------------------------------------------------------------- env

declare -gA NODE_ENV=()

# Reads KEY=VALUE lines into NODE_ENV. The value is everything behind the first "=", taken as it is: no quotes, no
# expansion, no continuation. Empty lines and lines that start with "#" are skipped; the last line of a key holds.
env::load() { # FILE
  local line number=0
  [ -r "$1" ] || log::die "$1 is not there or cannot be read" "run the bootstrap action (load-bundle.sh) as root first"
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    [[ -z $line || $line == '#'* ]] && continue
    if [[ ! $line =~ ^([A-Z][A-Z0-9_]*)=([^[:cntrl:]]*)$ ]]; then
      log::die "$1:$number: $(printf %q "$line"): not KEY=VALUE with an upper-case key and a value without control characters" \
        "correct the line (values of the site: /etc/slipway/site.env) and run the setup again"
    fi
    NODE_ENV[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
  done <"$1"
}

env::get() { # KEY [DEFAULT]: prints the value; a key that is absent without a default is a fault
  if [[ -v NODE_ENV[$1] ]]; then
    printf '%s' "${NODE_ENV[$1]}"
  elif [ "$#" -ge 2 ]; then
    printf '%s' "$2"
  else
    log::die "$SLIPWAY_NODE_ENV has no $1" "add $1=... to /etc/slipway/site.env and run the setup again"
  fi
}

env::get_number() { # KEY DEFAULT: a whole number from 1 to 999999
  local value
  value=$(env::get "$1" "$2")
  if [[ ! $value =~ ^[1-9][0-9]{0,5}$ ]]; then
    log::die "$SLIPWAY_NODE_ENV: $1 = '$value': not a whole number from 1 to 999999" \
      "correct $1 in /etc/slipway/site.env and run the setup again"
  fi
  printf '%s' "$value"
}

env::get_path() { # KEY DEFAULT: an absolute path of plain characters
  local value
  value=$(env::get "$1" "$2")
  if [[ ! $value =~ ^(/[A-Za-z0-9._-]+)+$ || $value == *..* ]]; then
    log::die "$SLIPWAY_NODE_ENV: $1 = '$value': not an absolute path of letters, digits, '.', '_' and '-'" \
      "correct $1 in /etc/slipway/site.env and run the setup again"
  fi
  printf '%s' "$value"
}

# --------------------------------------------------------------------------------------------------------------- file

# Puts a whole file in place: written beside its destination, then renamed over it. Equal content is left alone, so a
# second run changes nothing. SOURCE "-" reads standard input.
file::put() { # SOURCE DESTINATION MODE [OWNER:GROUP]
  local source=$1 destination=$2 mode=$3 owner=${4:-root:root} fresh
  fresh=$(file::fresh "$destination")
  [ "$source" != - ] || source=/dev/stdin
  # Never into a file or link that is there: others may write to the directory too (containers/ of /fsx). For the same
  # reason a file of another owner is replaced, even when it is equal: its owner may have it open.
  (set -o noclobber && cat "$source" >"$fresh") || file::put_failed "$destination" "$fresh"
  if [ -f "$destination" ] && [ ! -L "$destination" ] && file::owned "$destination" "$owner" && cmp --silent "$fresh" "$destination"; then
    rm -f "$fresh"
    file::mode "$destination" "$mode"
    return 0
  fi
  # Joined with && because callers test this function, which switches "set -e" off inside it.
  if ! { chown "$owner" "$fresh" && chmod "$mode" "$fresh" && sync "$fresh" && mv --force --no-target-directory "$fresh" "$destination"; }; then
    file::put_failed "$destination" "$fresh"
  fi
  log::info "wrote $destination"
}

# The name to make a file or directory under, before it gets its own: this process's alone, so that two at once do not
# meet. What ended processes left is removed, and what somebody else put in its place.
file::fresh() { # DESTINATION
  local left own=${1%/*}/.${1##*/}.slipway-new.$$ gone=()
  for left in "${1%/*}/.${1##*/}.slipway-new."*; do
    if [ "$left" = "$own" ] || [ ! -d "/proc/${left##*.}" ]; then gone+=("$left"); fi
  done
  # By one process: there may be as many as somebody likes.
  [ "${#gone[@]}" -eq 0 ] || printf '%s\0' "${gone[@]}" | xargs --null rm -rf -- || true
  printf '%s' "$own"
}

file::put_failed() { # DESTINATION TEMPORARY_FILE
  rm -f "$2" || true
  log::die "cannot write $1" "is it read-only or full? see 'df -h ${1%/*}' and 'ls -ld ${1%/*}'"
}

file::owned() { # PATH OWNER:GROUP
  [ "$(stat --format '%U:%G' "$1")" = "$2" ]
}

file::mode() { # PATH MODE: changes it only where it differs
  local found
  found=$(stat --format '%a' "$1")
  [ "$((8#$found))" -eq "$((8#$2))" ] || chmod "$2" "$1"
}

# The file of a lock, which root alone may open: whoever can open a file, even only to read it, can hold a lock on it.
file::lock() { # PATH
  mkdir -p "${1%/*}"
  (umask 077 && : >>"$1")
  chmod 0600 "$1"
}

# The directory, made with MODE where it is absent. One that is there keeps its owner and mode: they are the user's.
file::directory() { # PATH MODE [OWNER:GROUP]
  local fresh
  if [ -e "$1" ]; then
    [ -d "$1" ] || log::die "$1 is there, but is no directory" "move it away and run the setup again"
    return 0
  fi
  fresh=$(file::fresh "$1")
  # Made under another name first, so that a kill never leaves the right name with the wrong mode.
  if ! { mkdir -p "$fresh" && chown "${3:-root:root}" "$fresh" && chmod "$2" "$fresh" && mv --no-target-directory "$fresh" "$1"; }; then
    rmdir "$fresh" || true
    [ -d "$1" ] || file::put_failed "$1" "$fresh" # there: another process made it at the same moment
  fi
  log::info "made $1"
}

file::link() { # TARGET LINK: by one rename, and only when it differs
  local fresh
  [ "$(readlink "$2" || true)" != "$1" ] || return 0
  fresh=$(file::fresh "$2")
  ln --symbolic --force --no-dereference "$1" "$fresh"
  mv --force --no-target-directory "$fresh" "$2"
  log::info "linked $2 to $1"
}

# A template of the bundle, filled from node.env and KEY=VALUE pairs; put in place whole.
file::render() { # TEMPLATE DESTINATION MODE [KEY=VALUE ...]
  local rendered status=0
  rendered=$(mktemp)
  python3 "$SLIPWAY_BUNDLE/nodes/render.py" "$SLIPWAY_BUNDLE/templates/$1" --env "$SLIPWAY_NODE_ENV" \
    --output "$rendered" "${@:4}" || status=$?
  [ "$status" -ne 0 ] || file::put "$rendered" "$2" "$3" || status=$?
  rm -f "$rendered"
  return "$status"
}

# -------------------------------------------------------------------------------------------------------------- retry

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

# -------------------------------------------------------------------------------------------------------------- fetch

fetch::once() { # URL DESTINATION
  case $1 in
    s3://*) timeout --kill-after=5 "$FETCH_TIMEOUT_S" aws s3 cp --only-show-errors "$1" "$2" ;;
    https://*) fetch::curl '=https' "$1" "$2" ;;
    http://*) fetch::curl '=http,https' "$1" "$2" ;;
    *) log::die "cannot fetch '$1': neither s3:// nor http(s)://" "correct SOFTWARE_MIRROR or the line of software.tsv" ;;
  esac
}

fetch::curl() { # PROTOCOLS URL DESTINATION: an https address is never followed to plain http
  curl --fail --silent --show-error --location --max-redirs 5 --proto "$1" --proto-redir "$1" \
    --connect-timeout 10 --max-time "$FETCH_TIMEOUT_S" --max-filesize "$FETCH_MAX_BYTES" --output "$3" -- "$2"
}

fetch::sha256() { # FILE
  local found
  found=$(sha256sum <"$1")
  printf '%s' "${found%% *}"
}

# ----------------------------------------------------------------------------------------------------------- software

# Sets SOFTWARE_VERSION, SOFTWARE_SHA256, SOFTWARE_URL from the first line that fits, the site's lines first.
software::find() { # NAME [VERSION]
  local table name version sha256 url
  for table in "$SLIPWAY_SITE_SOFTWARE" "$SLIPWAY_BUNDLE/nodes/software.tsv"; do
    [ -r "$table" ] || continue
    while IFS=$'\t' read -r name version sha256 url; do
      [[ $name == "$1" && ($# -lt 2 || $version == "${2:-}") ]] || continue
      [[ $sha256 =~ ^[0-9a-f]{64}$ && -n $url ]] ||
        log::die "$table: line of $1: not NAME, VERSION, SHA256, URL separated by tabs" "correct the line"
      SOFTWARE_VERSION=$version SOFTWARE_SHA256=$sha256 SOFTWARE_URL=$url
      return 0
    done <"$table"
  done
  return 1
}

# With a mirror the file keeps its name, and the mirror's SHA256SUMS says what it must hash to.
software::use_mirror() { # MIRROR: sets SOFTWARE_URL and SOFTWARE_SHA256
  local file=${SOFTWARE_URL##*/} sums line
  sums=$(mktemp)
  retry::run "$FETCH_TRIES" 2 fetch::once "${1%/}/SHA256SUMS" "$sums" ||
    log::die "cannot read ${1%/}/SHA256SUMS" "SOFTWARE_MIRROR must hold the files and a SHA256SUMS made with sha256sum"
  SOFTWARE_SHA256=
  while IFS= read -r line; do
    # The second column may have "*" (binary) or "./" before the name.
    if [[ $line =~ ^([0-9a-f]{64})[[:space:]]+\*?(\./)?(.+)$ && ${BASH_REMATCH[3]} == "$file" ]]; then
      SOFTWARE_SHA256=${BASH_REMATCH[1]}
    fi
  done <"$sums"
  rm -f "$sums"
  [ -n "$SOFTWARE_SHA256" ] || log::die "${1%/}/SHA256SUMS has no line of $file" "add $file to the mirror"
  SOFTWARE_URL=${1%/}/$file
}

# Fetches what software::find chose; sets SOFTWARE_FILE to a file that was held against its checksum.
software::download() { # NAME
  local mirror origin='from upstream' fresh found
  mirror=$(env::get SOFTWARE_MIRROR '')
  if [ -n "$mirror" ]; then
    software::use_mirror "$mirror"
    origin='from mirror'
  fi
  mkdir -p "$SLIPWAY_CACHE_DIR"
  SOFTWARE_FILE=$SLIPWAY_CACHE_DIR/${SOFTWARE_SHA256:0:12}-${SOFTWARE_URL##*/}
  [ ! -f "$SOFTWARE_FILE" ] || return 0
  fresh=$(file::fresh "$SOFTWARE_FILE")
  touch "$fresh" || log::die "cannot write in $SLIPWAY_CACHE_DIR" "is it read-only or full? see 'df -h $SLIPWAY_CACHE_DIR'"
  retry::run "$FETCH_TRIES" 2 fetch::once "$SOFTWARE_URL" "$fresh" ||
    log::die "cannot fetch $SOFTWARE_URL" "no way to the internet? set SOFTWARE_MIRROR=s3://... in /etc/slipway/site.env"
  found=$(fetch::sha256 "$fresh")
  if [ "$found" != "$SOFTWARE_SHA256" ]; then
    rm -f "$fresh"
    log::die "$SOFTWARE_URL has sha256 $found, expected $SOFTWARE_SHA256" \
      "the file is not the one that was pinned: do not use it; find out why before you change software.tsv"
  fi
  mv --no-target-directory "$fresh" "$SOFTWARE_FILE"
  log::info "$1 $SOFTWARE_VERSION $origin, sha256 ${SOFTWARE_SHA256:0:12}"
}

# Unpacks a pinned release to /opt/slipway/software/NAME/SHA12 and points .../NAME/current to it, each in one step.
software::install() { # NAME PROGRAM
  local home=$SLIPWAY_SOFTWARE_DIR/$1 work release
  software::find "$1" || log::die "software.tsv has no line of $1" "add one to $SLIPWAY_SITE_SOFTWARE"
  software::download "$1"
  release=$home/${SOFTWARE_SHA256:0:12}
  mkdir -p "$home"
  if [ ! -d "$release" ]; then
    rm -rf "$home"/.unpack.*
    work=$(mktemp -d "$home/.unpack.XXXXXX")
    tar --extract --gzip --no-same-owner --strip-components=1 --file "$SOFTWARE_FILE" --directory "$work"
    [ -x "$work/$2" ] || log::die "${SOFTWARE_URL##*/} holds no program $2" "the file in the mirror is not the release"
    # A small file that stands for the release: unit::ensure need not hash a program of 100 MB each time.
    printf '%s\n' "$SOFTWARE_SHA256" >"$work/.sha256"
    chmod 0755 "$work"
    mv --no-target-directory "$work" "$release"
  fi
  file::link "${release##*/}" "$home/current"
}

# --------------------------------------------------------------------------------------------------------------- unit

# Enables and starts a unit whose files are in place. It is started anew only if one of FILES differs from what it
# was last started with; that is noted after the start, so a run that was killed in between does it again.
unit::ensure() { # UNIT FILE ...
  local unit=$1 note=$SLIPWAY_STATE_DIR/units/$1.sha256 wanted
  shift
  wanted=$(sha256sum -- "$@")
  mkdir -p "${note%/*}"
  if systemctl is-active --quiet "$unit" && systemctl is-enabled --quiet "$unit" && [ "$wanted" = "$(cat "$note" 2>/dev/null)" ]; then
    return 0
  fi
  systemctl daemon-reload
  systemctl enable --quiet "$unit"
  timeout --kill-after=5 "$UNIT_TIMEOUT_S" systemctl restart "$unit" || unit::fail "$unit" "did not start"
  unit::wait_active "$unit"
  printf '%s\n' "$wanted" | file::put - "$note" 0644
  log::info "started $unit"
}

# A service that dies at once is still "active" for a moment: it has to be so twice, a while apart.
unit::wait_active() { # UNIT
  local end=$((SECONDS + UNIT_TIMEOUT_S)) good=0 state
  while [ "$SECONDS" -lt "$end" ]; do
    state=$(systemctl show --property ActiveState --value "$1")/$(systemctl show --property SubState --value "$1")
    case $state in
      active/*) good=$((good + 1)) ;;
      failed/* | */auto-restart) break ;;
      *) good=0 ;;
    esac
    [ "$good" -lt 2 ] || return 0
    sleep 0.3
  done
  unit::fail "$1" "is not running"
}

unit::fail() { # UNIT WHAT
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

# --------------------------------------------------------------------------------------------------------- background

# The state of work that goes on after the setup, for `slipway status`; each change of state is also a line of setup.log.
# STATE: waiting, running, done or failed. PERCENT 0 to 100 and ETA_S (seconds) may be empty: not known.
background::status() { # NAME STATE DETAIL LOG [HINT [PERCENT [ETA_S]]]
  local file=$SLIPWAY_STATE_DIR/background/$1.json before=''
  mkdir -p "${file%/*}" "$SLIPWAY_LOG_DIR"
  [ ! -r "$file" ] || before=$(background::field "$1" state)
  file::put - "$file" 0644 >/dev/null <<JSON
{"name": $(steps::json "$1"), "state": $(steps::json "$2"), "detail": $(steps::json "$3"), "percent": ${6:-null}, "eta_s": ${7:-null}, "log": $(steps::json "$4"), "hint": $(steps::json "${5:-}"), "updated": "$(date --utc +%Y-%m-%dT%H:%M:%SZ)"}
JSON
  [ "$before" = "$2" ] || steps::say "slipway: background $1 $2: $3"
}

background::field() { # NAME KEY: a text of that state
  sed --quiet "s/.*\"$2\": \"\([^\"]*\)\".*/\1/p" "$SLIPWAY_STATE_DIR/background/$1.json"
}

# -------------------------------------------------------------------------------------------------------------- steps

steps::say() { # LINE: on the screen and in the log of the whole
  printf '%s\n' "$1"
  printf '%s %s\n' "$(date --utc +%Y-%m-%dT%H:%M:%SZ)" "$1" >>"$SLIPWAY_LOG_DIR/setup.log"
}

# The value of a line "# NAME: VALUE" of a step's head comment.
steps::head() { # FILE NAME
  local line
  while IFS= read -r line && [[ $line == '#'* ]]; do
    if [[ $line =~ ^#\ $2:[[:space:]]+(.*)$ ]]; then
      printf '%s' "${BASH_REMATCH[1]}"
      return 0
    fi
  done <"$1"
  log::die "$1: its head comment has no line '# $2: ...'" "add it: see the other steps"
}

steps::json() { # TEXT: as a JSON string, quotes included
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\t'/ }
  printf '"%s"' "${text//[[:cntrl:]]/ }"
}

steps::record() { # KIND NAME STATUS EXIT SECONDS LOG HINT
  file::put - "$SLIPWAY_STATE_DIR/steps/$2.json" 0644 >/dev/null <<JSON
{"step": $(steps::json "$1/$2"), "status": $(steps::json "$3"), "exit": $4, "seconds": $5, "log": $(steps::json "$6"), "hint": $(steps::json "$7"), "finished": "$(date --utc +%Y-%m-%dT%H:%M:%SZ)"}
JSON
}

steps::hint() { # LOG SETUP_SCRIPT: what the step itself advised last, else where to look
  local hint
  hint=$(sed --quiet 's/^slipway-hint: //p' "$1" | tail --lines=1)
  printf '%s' "${hint:-read $1, repair, then run: sudo $2}"
}

steps::limit() { # STEP_FILE: seconds, the step's own bound or STEP_TIMEOUT_S, whichever is less
  local own most
  own=$(steps::head "$1" timeout)
  [[ $own =~ ^([1-9][0-9]*)\ s$ ]] || log::die "$1: timeout '$own' is not '<number> s'" "correct its head comment"
  own=${BASH_REMATCH[1]}
  most=$(env::get_number STEP_TIMEOUT_S 300) || return 1
  printf '%s' "$((own < most ? own : most))"
}

# Tenths of a second since the boot: the clock of the wall may be set while a step runs.
steps::tenths() {
  local up
  read -r up _ </proc/uptime
  up=${up%?}
  printf '%s' "$((10#${up/./}))"
}

steps::tail() { # LOG: its last 15 lines, on the screen and in the log of the whole
  local line
  while IFS= read -r line; do steps::say "  | $line"; done < <(tail --lines=15 "$1")
}

# Runs one step; 0 when the setup may go on.
steps::run_one() { # KIND STEP_FILE
  local name=${2##*/} log limit policy started seconds hint status=0 tenths what
  name=${name%.sh}
  log=$SLIPWAY_LOG_DIR/$name.log
  limit=$(steps::limit "$2") || return 1
  policy=$(steps::head "$2" 'on failure') || return 1
  steps::say "slipway: step $1/$name started"
  started=$(steps::tenths)
  timeout --kill-after=5 "$limit" "$2" >"$log" 2>&1 </dev/null 9>&- || status=$?
  tenths=$(($(steps::tenths) - started))
  seconds=$((tenths / 10)).$((tenths % 10))
  if [ "$status" -eq 0 ]; then
    steps::record "$1" "$name" ok 0 "$seconds" "$log" ''
    steps::say "slipway: step $1/$name ok $seconds s"
    return 0
  fi
  hint=$(steps::hint "$log" "$0")
  what="exit=$status"
  # timeout answers 124, or 137 when the step had to be killed.
  if [ "$status" -eq 124 ] || { [ "$status" -eq 137 ] && [ "$tenths" -ge $((limit * 10)) ]; }; then
    what="exit=124 exceeded $limit s"
    hint="it waited for something that did not come: read $log, then run: sudo $0"
  fi
  if [ "$policy" = report ]; then
    steps::record "$1" "$name" reported "$status" "$seconds" "$log" "$hint"
    steps::say "slipway: WARNING host=$(uname -n) step=$1/$name $what log=$log hint=$hint"
    return 0
  fi
  steps::record "$1" "$name" failed "$status" "$seconds" "$log" "$hint"
  steps::say "slipway: FAULT host=$(uname -n) step=$1/$name $what log=$log hint=$hint"
  # ParallelCluster keeps a failed custom action's standard error for its own log of the cluster's events.
  printf 'slipway: step %s/%s on %s failed: %s\n' "$1" "$name" "$(uname -n)" "$hint" >&2
  steps::tail "$log"
  return 1
}

# Removes the records of steps that only an earlier release had: `slipway status` would show them for ever.
steps::forget() { # DIRECTORY
  local record name
  for record in "$SLIPWAY_STATE_DIR"/steps/*.json; do
    name=${record##*/}
    [ -e "$1/${name%.json}.sh" ] || rm -f "$record"
  done
}

# Runs every step of a directory in the order of its numbers, one run at a time; stops at the first fault.
steps::run_all() { # KIND DIRECTORY
  local step
  [ "$(id -u)" -eq 0 ] || log::die "the setup needs root" "run: sudo $0"
  mkdir -p "$SLIPWAY_LOG_DIR" "$SLIPWAY_STATE_DIR/steps"
  file::lock /run/slipway/setup.lock
  exec 9>/run/slipway/setup.lock
  flock --wait "$SETUP_LOCK_TIMEOUT_S" 9 ||
    log::die "another setup ran for more than $SETUP_LOCK_TIMEOUT_S s" "see $SLIPWAY_LOG_DIR/setup.log"
  env::load "$SLIPWAY_NODE_ENV"
  steps::forget "$2"
  for step in "$2"/[0-9][0-9]-*.sh; do
    steps::run_one "$1" "$step" || exit 1
  done
  steps::say "slipway: setup of this $1 node done in $SECONDS s"
}
