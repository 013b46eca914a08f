# shellcheck shell=bash
# steps.sh: run the numbered steps of a node. Sourced by all.sh.

readonly SETUP_LOCK_TIMEOUT_S=900

steps::say() { # LINE: prints it and appends it to setup.log
  printf '%s\n' "$1"
  TZ=UTC printf '%(%Y-%m-%dT%H:%M:%SZ)T %s\n' -1 "$1" >>"$SLIPWAY_LOG_DIR/setup.log"
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

# One process writes the records of all steps: python3 takes longer to start than many a step. It ends with this script.
steps::record() { # KIND NAME STATUS EXIT SECONDS LOG HINT
  local answer=''
  if [ -z "${RECORDER_PID:-}" ]; then
    coproc RECORDER { exec python3 -I -S "$SLIPWAY_BUNDLE/nodes/lib/state.py" steps 9>&-; } # 9: the lock of the set-up
  fi
  printf '%s\0' "$1/$2" "${@:3}" >&"${RECORDER[1]}"
  read -r answer <&"${RECORDER[0]}" || true
  [ "$answer" = ok ] || exit 1
}

steps::hint() { # LOG SETUP_SCRIPT: the last hint of the step, else where to look
  local hint
  hint=$(sed --quiet 's/^slipway-hint: //p' "$1" | tail --lines=1)
  printf '%s' "${hint:-read $1, repair, then run: sudo $2}"
}

steps::limit() { # STEP_FILE: seconds: the lesser of its time-out and STEP_TIMEOUT_S
  local limit most
  limit=$(steps::head "$1" timeout)
  [[ $limit =~ ^([1-9][0-9]*)\ s$ ]] || log::die "$1: timeout '$limit' is not '<number> s'" "correct its head comment"
  limit=${BASH_REMATCH[1]}
  most=$(env::get_number STEP_TIMEOUT_S 300) || return 1
  printf '%s' "$((limit < most ? limit : most))"
}

# Tenths of a second since the boot: the wall clock may be set while a step runs.
steps::tenths() {
  local up
  read -r up _ </proc/uptime
  up=${up%?}
  printf '%s' "$((10#${up/./}))"
}

steps::tail() { # LOG: its last 15 lines, as steps::say
  local line
  while IFS= read -r line; do steps::say "  | $line"; done < <(tail --lines=15 "$1")
}

# Runs one step; 0 when the set-up may go on.
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
    hint="it waited for an answer that did not come: read $log, then run: sudo $0"
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

# The step files of a kind of node in the order of their numbers: its own, and those of nodes/steps that name the kind.
steps::of() { # KIND
  local step runs_on
  for step in "$SLIPWAY_BUNDLE"/{nodes,"$1"}/steps/[0-9][0-9]-*.sh; do
    [ -f "$step" ] || continue # a folder without steps: the pattern itself
    runs_on=$1
    [[ $step != "$SLIPWAY_BUNDLE/nodes/"* ]] || runs_on=$(steps::head "$step" 'runs on') || return 1
    [[ " $runs_on " != *" $1 "* ]] || printf '%s\t%s\n' "${step##*/}" "$step"
  done | sort | cut --fields=2
}

# Removes the records of steps that only an earlier release had: `slipway status` would show them for ever.
steps::forget() { # STEP_FILES, one a line
  local record name
  for record in "$SLIPWAY_STATE_DIR"/steps/*.json; do
    name=${record##*/}
    [[ $1 == *"/${name%.json}.sh"* ]] || rm -f "$record"
  done
}

# Runs every step of a kind of node, headnode or compute, one run at a time; stops at the first fault.
steps::run_all() { # KIND
  local steps step
  [ "$(id -u)" -eq 0 ] || log::die "the set-up needs root" "run: sudo $0"
  mkdir -p "$SLIPWAY_LOG_DIR" "$SLIPWAY_STATE_DIR/steps"
  file::lock /run/slipway/setup.lock
  exec 9>/run/slipway/setup.lock
  flock --wait "$SETUP_LOCK_TIMEOUT_S" 9 ||
    log::die "another setup ran for more than $SETUP_LOCK_TIMEOUT_S s" "see $SLIPWAY_LOG_DIR/setup.log"
  env::load "$SLIPWAY_NODE_ENV"
  steps=$(steps::of "$1") || exit 1
  steps::forget "$steps"
  software::fetch_list_once setup
  for step in $steps; do
    steps::run_one "$1" "$step" || exit 1
  done
  steps::say "slipway: set-up of this $1 node done in $SECONDS s"
}
