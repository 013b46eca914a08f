# shellcheck shell=bash
# log.sh: messages of the node scripts, one line each, each starting with "slipway:". Sourced by all.sh.

log::info() { # MESSAGE
  printf 'slipway: %s\n' "$1"
}

log::warn() { # MESSAGE
  printf 'slipway: WARNING %s\n' "$1" >&2
}

# Ends a step. The runner reads the hint from the step's log and repeats it in the line that reports the fault; an EXIT
# trap reads both from LOG_REASON and LOG_HINT.
LOG_REASON='' LOG_HINT=''
log::die() { # MESSAGE HINT
  # shellcheck disable=SC2034  # the scripts read them in an EXIT trap
  LOG_REASON=$1 LOG_HINT=$2
  printf 'slipway: %s\nslipway-hint: %s\n' "$1" "$2" >&2
  exit 1
}
