#!/bin/bash
# fetch-bundle.sh KIND BUNDLE_URL SHA256 [KEY=VALUE ...]: the bootstrap action that ParallelCluster runs on each node.
#
#   KIND        head | compute
#   BUNDLE_URL  s3://BUCKET/KEY of the bundle (a gzipped tar)
#   SHA256      64 hexadecimal digits: what the bundle must hash to
#   KEY=VALUE   values that are known at deploy time; added to the bundle's node.env
#
# needs:       aws, sha256sum, tar, flock; an instance profile that may read the bundle
# permission:  root
# how often:   once a node; safe to run again: a release that is there is not fetched again
# on failure:  exit 1 (2: wrong arguments), one line that starts with "slipway: FAULT"; the release in use stays as it was
#
# It stands alone: nothing of the bundle is here yet. Each change takes effect by one rename, so a kill at any
# moment leaves the old state or the new one.
set -euo pipefail
umask 022
export PATH="/usr/local/sbin:/usr/local/bin:/opt/slurm/bin:${PATH:-/usr/sbin:/usr/bin:/sbin:/bin}"
export HOME="${HOME:-/root}"

readonly OPT_DIR=/opt/slipway
readonly ETC_DIR=/etc/slipway
readonly LOCK=/run/slipway-fetch.lock
readonly FETCH_TRIES=5
readonly FETCH_TIMEOUT_S=120
readonly LOCK_TIMEOUT_S=600
readonly KEY_VALUE='^[A-Z][A-Z0-9_]*=[^[:cntrl:]]*$'

fetch::die() { # STATUS MESSAGE HINT
  printf 'slipway: FAULT host=%s step=fetch-bundle exit=%s %s. Hint: %s\n' "$(uname -n)" "$1" "$2" "$3" >&2
  exit "$1"
}

fetch::check_args() {
  local usage='fetch-bundle.sh head|compute s3://BUCKET/KEY SHA256 [KEY=VALUE ...]'
  [ "$#" -ge 3 ] || fetch::die 2 "$# arguments, 3 or more expected" "$usage"
  [[ $1 =~ ^(head|compute)$ ]] || fetch::die 2 "kind '$1' is neither head nor compute" "$usage"
  [[ $2 =~ ^s3://[a-z0-9][a-z0-9.-]+/[A-Za-z0-9!_.*()/-]+$ ]] || fetch::die 2 "bundle '$2' is no s3://BUCKET/KEY" "$usage"
  [[ $3 =~ ^[0-9a-f]{64}$ ]] || fetch::die 2 "sha256 '$3' is not 64 hexadecimal digits" "$usage"
  local pair
  for pair in "${@:4}"; do
    [[ $pair =~ $KEY_VALUE ]] || fetch::die 2 "argument $(printf %q "$pair") is no KEY=VALUE on one line" "$usage"
  done
}

# One bounded download after another, the pause doubled each time: at boot the instance profile may need some seconds.
fetch::download() { # URL DESTINATION
  local try pause=2
  for ((try = 1; try <= FETCH_TRIES; try++)); do
    if timeout --kill-after=5 "$FETCH_TIMEOUT_S" aws s3 cp --only-show-errors "$1" "$2"; then
      return 0
    fi
    [ "$try" -lt "$FETCH_TRIES" ] || break
    printf 'slipway: fetch-bundle: try %s of %s failed, next one in %s s\n' "$try" "$FETCH_TRIES" "$pause" >&2
    sleep "$pause"
    pause=$((pause * 2))
  done
  fetch::die 1 "cannot read $1 after $FETCH_TRIES tries" \
    "run 'aws s3 cp $1 -' on this node: the instance policy or the way to S3 (NAT, endpoint) is missing"
}

fetch::verify() { # FILE SHA256 URL
  local found
  found=$(sha256sum <"$1")
  found=${found%% *}
  [ "$found" = "$2" ] || fetch::die 1 "$3 has sha256 $found, expected $2" "the bundle changed after the deployment: deploy again"
}

# Makes the release directory, whole or not at all.
fetch::release() { # URL SHA256 SETUP_SCRIPT -> RELEASE
  RELEASE=$OPT_DIR/releases/${2:0:12}
  if [ -d "$RELEASE" ]; then
    printf 'slipway: fetch-bundle: release %s is here already\n' "${2:0:12}"
    return 0
  fi
  fetch::download "$1" "$WORK/bundle.tar.gz"
  fetch::verify "$WORK/bundle.tar.gz" "$2" "$1"
  mkdir "$WORK/release"
  tar --extract --gzip --no-same-owner --file "$WORK/bundle.tar.gz" --directory "$WORK/release" ||
    fetch::die 1 "$1 cannot be unpacked" "is the disk full? see 'df -h $OPT_DIR'"
  local needed
  for needed in bootstrap/common.sh node.env "$3"; do
    [ -f "$WORK/release/$needed" ] || fetch::die 1 "$1 holds no $needed" "make the bundle again with 'cdk deploy'"
  done
  sync --file-system "$WORK/release"
  mv --no-target-directory "$WORK/release" "$RELEASE"
}

# node.env: the bundle's values, then the deployment's, then the site's own; the last one of a key holds.
fetch::write_node_env() { # RELEASE [KEY=VALUE ...]
  local release=$1
  shift
  {
    printf '# Written by fetch-bundle.sh; a value of your own goes to %s/site.env, then run it again.\n' "$ETC_DIR"
    cat "$release/node.env"
    printf '# From the deployment\n'
    [ "$#" -eq 0 ] || printf '%s\n' "$@"
    if [ -f "$ETC_DIR/site.env" ]; then
      printf '# From %s/site.env\n' "$ETC_DIR"
      cat "$ETC_DIR/site.env"
    fi
  } >"$ETC_DIR/.node.env.new"
  chmod 0644 "$ETC_DIR/.node.env.new"
  if cmp --silent "$ETC_DIR/.node.env.new" "$ETC_DIR/node.env"; then
    rm -f "$ETC_DIR/.node.env.new"
  else
    sync "$ETC_DIR/.node.env.new"
    mv --no-target-directory "$ETC_DIR/.node.env.new" "$ETC_DIR/node.env"
  fi
}

fetch::switch() { # RELEASE
  [ "$(readlink "$OPT_DIR/current" || true)" != "$1" ] || return 0
  ln --symbolic --force --no-dereference "$1" "$OPT_DIR/.current.new"
  mv --no-target-directory "$OPT_DIR/.current.new" "$OPT_DIR/current"
}

fetch::main() {
  fetch::check_args "$@"
  local setup=headnode/setup-headnode.sh
  [ "$1" = head ] || setup=compute/setup-compute.sh
  mkdir -p "$OPT_DIR/releases" "$ETC_DIR"
  exec {LOCK_FD}>"$LOCK"
  flock --wait "$LOCK_TIMEOUT_S" "$LOCK_FD" ||
    fetch::die 1 "another fetch-bundle.sh ran for more than $LOCK_TIMEOUT_S s" "look for it with 'ps ax'"
  # What a killed run left: nobody else works here while the lock is held.
  rm -rf "$OPT_DIR"/.work.* "$ETC_DIR/.node.env.new" "$OPT_DIR/.current.new"
  WORK=$(mktemp -d "$OPT_DIR/.work.XXXXXX")
  trap 'rm -rf "$WORK"' EXIT
  fetch::release "$2" "$3" "$setup"
  fetch::write_node_env "$RELEASE" "${@:4}"
  fetch::switch "$RELEASE"
  rm -rf "$WORK"
  trap - EXIT
  exec {LOCK_FD}>&-
  exec "$OPT_DIR/current/$setup"
}

fetch::main "$@"
