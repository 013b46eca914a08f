#!/bin/bash
# use-bundle.sh KIND BUNDLE_URL SHA256 [KEY=VALUE ...]: puts one release of the bundle into use and runs its setup.
#
#   KIND        head | compute
#   BUNDLE_URL  s3://BUCKET/KEY of the bundle, for messages
#   SHA256      64 hexadecimal digits: the checksum of the bundle; the first 12 name its release on this node
#   KEY=VALUE   values that are known at deploy time; added to the bundle's node.env
#
# SLIPWAY_CONFIGURED_SHA256, from load-bundle.sh, is set during `pcluster update-cluster`: the bundle that the
# configuration of the cluster was built for. During a rollback by CloudFormation it differs from SHA256; then the older
# release is used if it is still on disk. docs/updates.md has the whole story.
#
# needs:       the release in /opt/slipway/releases (load-bundle.sh puts it there), flock
# permission:  root
# how often:   once a node and release; safe to run again
# on failure:  exit 1 (2: wrong arguments), one line that starts with "slipway: FAULT"; the release in use stays as it
#              was. When the set-up of the new release fails, the last good release is in use again, with its values. In
#              an update of the cluster the exit code is then 0: a failure would leave the stack in
#              UPDATE_ROLLBACK_FAILED
#
# Each change takes effect by one rename, so a kill at any moment leaves the old state or the new one.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/all.sh"

readonly OPT_DIR=/opt/slipway
readonly ETC_DIR=/etc/slipway
readonly LOCK=/run/slipway-use.lock
readonly LOCK_TIMEOUT_S=900
readonly REPORT_TIMEOUT_S=30
# The release whose set-up ended well, and its node.env, as one file: one rename changes both.
readonly GOOD=$SLIPWAY_STATE_DIR/good-release
# The release whose set-up failed last, and the records of its steps; removed when a set-up ends well.
readonly FAILED=$SLIPWAY_STATE_DIR/failed-release
readonly KEY_VALUE='^[A-Z][A-Z0-9_]*=[^[:cntrl:]]*$'

use::die() { # STATUS MESSAGE HINT
  printf 'slipway: FAULT host=%s step=use-bundle exit=%s %s. Hint: %s\n' "$(uname -n)" "$1" "$2" "$3" >&2
  exit "$1"
}

# Faults of the functions in lib/ are reported in the same form.
log::die() { # MESSAGE HINT
  use::die 1 "$1" "$2"
}

use::check_args() {
  local usage='use-bundle.sh head|compute s3://BUCKET/KEY SHA256 [KEY=VALUE ...]' pair
  [ "$#" -ge 3 ] || use::die 2 "$# arguments, 3 or more expected" "$usage"
  [[ $1 =~ ^(head|compute)$ ]] || use::die 2 "kind '$1' is neither head nor compute" "$usage"
  [[ $2 =~ ^s3://[a-z0-9][a-z0-9.-]+/[A-Za-z0-9!_.*()/-]+$ ]] ||
    use::die 2 "bundle '$2' is not s3://BUCKET/KEY" "$usage"
  [[ $3 =~ ^[0-9a-f]{64}$ ]] || use::die 2 "sha256 '$3' is not 64 hexadecimal digits" "$usage"
  for pair in "${@:4}"; do
    [[ $pair =~ $KEY_VALUE ]] || use::die 2 "argument $(printf %q "$pair") is not KEY=VALUE on one line" "$usage"
  done
}

use::check_release() { # RELEASE URL SETUP_SCRIPT
  local needed
  [ -d "$1" ] || use::die 1 "release ${1##*/} is not on this node" \
    "load-bundle.sh fetches it: sudo $OPT_DIR/current/nodes/load-bundle.sh KIND REGION PARAMETER"
  for needed in nodes/lib/all.sh node.env "$3"; do
    [ -f "$1/$needed" ] || use::die 1 "$2 has no $needed" "make the bundle again with 'cdk deploy'"
  done
}

# node.env: the bundle's values, then the deployment's, then the site's own; the last one of a key holds.
use::write_node_env() { # RELEASE head|compute [KEY=VALUE ...]
  {
    printf '# Written by use-bundle.sh; a value of your own goes to %s/site.env, then run it again.\n' "$ETC_DIR"
    cat "$1/node.env"
    printf '# From the deployment\nNODE_KIND=%s\n' "${2/#head/headnode}"
    [ "$#" -eq 2 ] || printf '%s\n' "${@:3}"
    if [ -f "$ETC_DIR/site.env" ]; then
      printf '# From %s/site.env\n' "$ETC_DIR"
      cat "$ETC_DIR/site.env"
    fi
  } | file::put - "$ETC_DIR/node.env" 0644 >/dev/null
}

# Runs the set-up of the release in use. The lock stays with this process alone.
use::setup() { # SETUP_SCRIPT
  "$OPT_DIR/current/$1" {LOCK_FD}>&-
}

use::remember() { # RELEASE
  local before='' old
  [ ! -r "$GOOD" ] || read -r before <"$GOOD"
  { printf '%s\n' "$1" && cat "$ETC_DIR/node.env"; } | file::put - "$GOOD" 0644 >/dev/null
  rm -rf "$FAILED"
  [ "$before" != "$1" ] || return 0
  # The release before stays, for an update that is rolled back.
  for old in "$OPT_DIR"/releases/*; do
    [ "$old" = "$1" ] || [ "$old" = "$before" ] || rm -rf "$old"
  done
}

# Keeps the records of the failure before another setup overwrites them. It must not hide the failure itself.
use::keep_records() { # RELEASE
  rm -rf "$FAILED"
  if ! { mkdir -p "$FAILED" && printf '%s\n' "$1" >"$FAILED/release" &&
    cp "$SLIPWAY_STATE_DIR"/steps/*.json "$FAILED/"; }; then
    log::warn "the records of the failed setup could not be kept"
  fi
}

# Puts the same on the shared file system, where `slipway status` looks for it.
use::report() {
  timeout --kill-after=5 "$REPORT_TIMEOUT_S" "$OPT_DIR/current/nodes/status/node_status.py" --share {LOCK_FD}>&- ||
    log::warn "the state of this node could not be shared"
}

# Goes back to the last good release and its values, unless they are the ones that failed. 0: its set-up ended well.
use::fall_back() { # SETUP_SCRIPT FAILED_RELEASE
  local good values status=0
  [ -r "$GOOD" ] || return 1
  read -r good <"$GOOD"
  [ -d "$good" ] || return 1
  values=$(tail --lines=+2 "$GOOD")
  [ "$good" != "$2" ] || [ "$values" != "$(<"$ETC_DIR/node.env")" ] || return 1
  printf 'slipway: release %s failed: back to %s and the values that were in use before\n' "${2##*/}" "${good##*/}" >&2
  printf '%s\n' "$values" | file::put - "$ETC_DIR/node.env" 0644 >/dev/null || exit 1
  file::link "$good" "$OPT_DIR/current" >/dev/null
  use::setup "$1" || status=$?
  if [ "$status" -ne 0 ]; then
    printf 'slipway: release %s is in use again, but its set-up ended with %s too\n' "${good##*/}" "$status" >&2
    return 1
  fi
  printf 'slipway: release %s is in use again, its set-up ended well; what failed is not in use\n' "${good##*/}" >&2
}

use::main() {
  local setup=headnode/setup-headnode.sh status=0 configured=${SLIPWAY_CONFIGURED_SHA256:-} release
  use::check_args "$@"
  if [[ $configured =~ ^[0-9a-f]{64}$ && $configured != "$3" && -d $OPT_DIR/releases/${configured:0:12} ]]; then
    printf 'slipway: the configuration of the cluster is of release %s, the parameter names %s: using the former\n' \
      "${configured:0:12}" "${3:0:12}"
    set -- "$1" "$2" "$configured" "${@:4}"
  fi
  [ "$1" = head ] || setup=compute/setup-compute.sh
  release=$OPT_DIR/releases/${3:0:12}
  mkdir -p "$OPT_DIR/releases" "$ETC_DIR" "$SLIPWAY_STATE_DIR"
  file::lock "$LOCK"
  exec {LOCK_FD}>"$LOCK"
  flock --wait "$LOCK_TIMEOUT_S" "$LOCK_FD" ||
    use::die 1 "another use-bundle.sh ran for more than $LOCK_TIMEOUT_S s" "look for it with 'ps ax'"
  use::check_release "$release" "$2" "$setup"
  use::write_node_env "$release" "$1" "${@:4}"
  file::link "$release" "$OPT_DIR/current" >/dev/null
  use::setup "$setup" || status=$?
  if [ "$status" -eq 0 ]; then
    use::remember "$release"
    return 0
  fi
  use::keep_records "$release"
  use::report
  if use::fall_back "$setup" "$release" && [ -n "$configured" ]; then return 0; fi
  exit "$status"
}

use::main "$@"
