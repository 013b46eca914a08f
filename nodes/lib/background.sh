# shellcheck shell=bash
# background.sh: the state of work that continues after the set-up, for `slipway status`. Sourced by all.sh.

# Records how far a work is. STATE: waiting, running, done or failed. A change of state is also a line of setup.log.
background::status() { # NAME STATE DETAIL LOG [HINT]
  python3 -I -S "$SLIPWAY_BUNDLE/nodes/lib/state.py" background "$@" || exit 1
}

background::field() { # NAME KEY: prints a text of the state, empty when it has none
  python3 -I -S "$SLIPWAY_BUNDLE/nodes/lib/state.py" field "$@"
}
