# shellcheck shell=bash
# background.sh: the state of work that continues after the setup. Sourced by all.sh.

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
