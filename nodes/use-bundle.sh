#!/bin/bash
# use-bundle.sh KIND BUNDLE_URL SHA256 [KEY=VALUE ...]: puts one release of the bundle into use and runs its setup.
#
#   KIND        head | compute
#   BUNDLE_URL  s3://BUCKET/KEY of the bundle, to name it when something is wrong with it
#   SHA256      64 hexadecimal digits: what the bundle hashes to, and the name of its release on this node
#   KEY=VALUE   values that are known at deploy time; added to the bundle's node.env
#
# SLIPWAY_CONFIGURED_SHA256, from load-bundle.sh: this is an update of the cluster, and its configuration is of that
# bundle. It is another one than SHA256 while an update is taken back; then that release is used, if it is here.
#
# needs:       the release in /opt/slipway/releases (load-bundle.sh puts it there), flock
# permission:  root
# how often:   once a node and release; safe to run again
# on failure:  exit 1 (2: wrong arguments), one line that starts with "slipway: FAULT"; the release in use stays as it
#              was. When the new one's setup fails, the last one that was good is in use again, with its values; that
#              is exit 0 in an update of the cluster: a failure would leave its stacks in UPDATE_ROLLBACK_FAILED
#
# load-bundle.sh starts it from the bundle. Each change takes effect by one rename, so a kill at any moment leaves the
# old state or the new one.
set -euo pipefail
umask 022
export PATH="/usr/local/sbin:/usr/local/bin:/opt/slurm/bin:${PATH:-/usr/sbin:/usr/bin:/sbin:/bin}"
export HOME="${HOME:-/root}"

readonly OPT_DIR=/opt/slipway
readonly ETC_DIR=/etc/slipway
readonly LOCK=/run/slipway-use.lock
readonly LOCK_TIMEOUT_S=900
readonly REPORT_TIMEOUT_S=30
# The release whose setup ended well, and its node.env, as one file: one rename changes both.
readonly GOOD=/var/lib/slipway/good-release
# The release whose setup failed last, and the records of its steps; there until another one's ends well.
readonly FAILED=/var/lib/slipway/failed-release
readonly KEY_VALUE='^[A-Z][A-Z0-9_]*=[^[:cntrl:]]*$'

use::die() { # STATUS MESSAGE HINT
  printf 'slipway: FAULT host=%s step=use-bundle exit=%s %s. Hint: %s\n' "$(uname -n)" "$1" "$2" "$3" >&2
  exit "$1"
}

use::check_args() {
  local usage='use-bundle.sh head|compute s3://BUCKET/KEY SHA256 [KEY=VALUE ...]'
  [ "$#" -ge 3 ] || use::die 2 "$# arguments, 3 or more expected" "$usage"
  [[ $1 =~ ^(head|compute)$ ]] || use::die 2 "kind '$1' is neither head nor compute" "$usage"
  [[ $2 =~ ^s3://[a-z0-9][a-z0-9.-]+/[A-Za-z0-9!_.*()/-]+$ ]] || use::die 2 "bundle '$2' is no s3://BUCKET/KEY" "$usage"
  [[ $3 =~ ^[0-9a-f]{64}$ ]] || use::die 2 "sha256 '$3' is not 64 hexadecimal digits" "$usage"
  local pair
  for pair in "${@:4}"; do
    [[ $pair =~ $KEY_VALUE ]] || use::die 2 "argument $(printf %q "$pair") is no KEY=VALUE on one line" "$usage"
  done
}

use::check_whole() { # DIRECTORY URL SETUP_SCRIPT
  local needed
  for needed in nodes/lib/all.sh node.env "$3"; do
    [ -f "$1/$needed" ] || use::die 1 "$2 holds no $needed" "make the bundle again with 'cdk deploy'"
  done
}

# The release directory of this bundle, which load-bundle.sh made.
use::release() { # URL SHA256 SETUP_SCRIPT -> RELEASE
  RELEASE=$OPT_DIR/releases/${2:0:12}
  [ -d "$RELEASE" ] ||
    use::die 1 "release ${2:0:12} is not on this node" "load-bundle.sh fetches it: sudo $OPT_DIR/current/nodes/load-bundle.sh KIND REGION PARAMETER"
  use::check_whole "$RELEASE" "$1" "$3"
}

# node.env: the bundle's values, then the deployment's, then the site's own; the last one of a key holds.
use::write_node_env() { # RELEASE head|compute [KEY=VALUE ...]
  local release=$1 kind=$2
  shift 2
  {
    printf '# Written by use-bundle.sh; a value of your own goes to %s/site.env, then run it again.\n' "$ETC_DIR"
    cat "$release/node.env"
    printf '# From the deployment\nNODE_KIND=%s\n' "${kind/#head/headnode}"
    [ "$#" -eq 0 ] || printf '%s\n' "$@"
    if [ -f "$ETC_DIR/site.env" ]; then
      printf '# From %s/site.env\n' "$ETC_DIR"
      cat "$ETC_DIR/site.env"
    fi
  } >"$ETC_DIR/.node.env.new"
  use::put "$ETC_DIR/.node.env.new" "$ETC_DIR/node.env"
}

# Puts FILE in the place of DESTINATION, if they differ.
use::put() { # FILE DESTINATION
  chmod 0644 "$1"
  if cmp --silent "$1" "$2"; then
    rm -f "$1"
  else
    sync "$1"
    mv --no-target-directory "$1" "$2"
  fi
}

use::switch() { # RELEASE
  [ "$(readlink "$OPT_DIR/current" || true)" != "$1" ] || return 0
  ln --symbolic --force --no-dereference "$1" "$OPT_DIR/.current.new"
  mv --no-target-directory "$OPT_DIR/.current.new" "$OPT_DIR/current"
}

# Runs the setup of the release in use. The lock stays with this process alone.
use::setup() { # SETUP_SCRIPT
  local status=0
  "$OPT_DIR/current/$1" {LOCK_FD}>&- || status=$?
  return "$status"
}

use::remember() { # RELEASE
  local before='' old
  mkdir -p "${GOOD%/*}"
  [ ! -r "$GOOD" ] || read -r before <"$GOOD"
  { printf '%s\n' "$1" && cat "$ETC_DIR/node.env"; } >"$GOOD.new"
  use::put "$GOOD.new" "$GOOD"
  rm -rf "$FAILED"
  [ "$before" != "$1" ] || return 0
  # The one before stays, for an update that is taken back.
  for old in "$OPT_DIR"/releases/*; do
    [ "$old" = "$1" ] || [ "$old" = "$before" ] || rm -rf "$old"
  done
}

# What is known of the failure, before another setup writes over it. It must not hide the failure itself.
use::keep_records() { # RELEASE
  rm -rf "$FAILED"
  mkdir -p "$FAILED" && printf '%s\n' "$1" >"$FAILED/release" && cp /var/lib/slipway/steps/*.json "$FAILED/" ||
    printf 'slipway: use-bundle: the records of the failed setup could not be kept\n' >&2
}

# The same, where `slipway status` looks for it.
use::report() {
  timeout --kill-after=5 "$REPORT_TIMEOUT_S" "$OPT_DIR/current/nodes/status/node_status.py" --share {LOCK_FD}>&- ||
    printf 'slipway: use-bundle: the state of this node could not be shared\n' >&2
}

# Back to the last release that was good, if there is another one; says which release is in use now. 0: that one is
# in use and its setup ended well.
use::fall_back() { # SETUP_SCRIPT FAILED_RELEASE
  local good status=0
  [ -r "$GOOD" ] || return 1
  read -r good <"$GOOD"
  [ -d "$good" ] || return 1
  tail --lines=+2 "$GOOD" >"$ETC_DIR/.node.env.new"
  if [ "$good" = "$2" ] && cmp --silent "$ETC_DIR/.node.env.new" "$ETC_DIR/node.env"; then
    rm -f "$ETC_DIR/.node.env.new"
    return 1
  fi
  printf 'slipway: release %s failed: back to %s and the values that were in use before\n' "${2##*/}" "${good##*/}" >&2
  use::put "$ETC_DIR/.node.env.new" "$ETC_DIR/node.env"
  use::switch "$good"
  use::setup "$1" || status=$?
  if [ "$status" -ne 0 ]; then
    printf 'slipway: release %s is in use again, but its setup ended with %s too\n' "${good##*/}" "$status" >&2
    return 1
  fi
  printf 'slipway: release %s is in use again, its setup ended well; what failed is not in use\n' "${good##*/}" >&2
}

use::main() {
  local setup=headnode/setup-headnode.sh status=0 configured=${SLIPWAY_CONFIGURED_SHA256:-}
  use::check_args "$@"
  if [[ $configured =~ ^[0-9a-f]{64}$ && $configured != "$3" && -d $OPT_DIR/releases/${configured:0:12} ]]; then
    printf 'slipway: the configuration of the cluster is of release %s, the parameter names %s: using the former\n' \
      "${configured:0:12}" "${3:0:12}"
    set -- "$1" "$2" "$configured" "${@:4}"
  fi
  [ "$1" = head ] || setup=compute/setup-compute.sh
  mkdir -p "$OPT_DIR/releases" "$ETC_DIR"
  # Who can open a lock's file, even only to read it, can hold it: root alone may.
  (umask 077 && : >>"$LOCK")
  chmod 0600 "$LOCK" /run/slipway-load.lock 2>/dev/null || true
  exec {LOCK_FD}>"$LOCK"
  flock --wait "$LOCK_TIMEOUT_S" "$LOCK_FD" ||
    use::die 1 "another use-bundle.sh ran for more than $LOCK_TIMEOUT_S s" "look for it with 'ps ax'"
  # What a killed run left: nobody else works here while the lock is held.
  rm -rf "$ETC_DIR/.node.env.new" "$OPT_DIR/.current.new" "$GOOD.new"
  use::release "$2" "$3" "$setup"
  use::write_node_env "$RELEASE" "$1" "${@:4}"
  use::switch "$RELEASE"
  use::setup "$setup" || status=$?
  if [ "$status" -eq 0 ]; then
    use::remember "$RELEASE"
    return 0
  fi
  use::keep_records "$RELEASE"
  use::report
  if use::fall_back "$setup" "$RELEASE" && [ -n "$configured" ]; then return 0; fi
  exit "$status"
}

use::main "$@"
