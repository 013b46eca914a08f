#!/bin/bash
# load-bundle.sh KIND REGION PARAMETER [SHA256 ...]: finds the bundle of this cluster and starts its use-bundle.sh.
#
#   KIND       head | compute
#   REGION     of the parameter
#   PARAMETER  name of the Systems Manager parameter that holds lines KEY=VALUE: BUNDLE_URL, BUNDLE_SHA256, and the
#              values that are known at deploy time
#   SHA256     during `pcluster update-cluster`: the bundle that the configuration was built for; for use-bundle.sh
#   ...        ignored; ParallelCluster passes further arguments so that the action counts as changed
#
# needs:       aws, sha256sum, tar, flock; an instance profile that may read the parameter and the bundle
# permission:  root
# how often:   once a node as its bootstrap action, again on the head node with each update; safe to run again
# on failure:  exit 1 (2: wrong arguments), one line that starts with "slipway: FAULT"; nothing was changed
#
# This file must not change: ParallelCluster refuses to update a cluster whose head node has another address of its
# action. What may change is in use-bundle.sh, which is in the bundle. docs/updates.md has the whole story.
set -euo pipefail
umask 022
export PATH="/usr/local/sbin:/usr/local/bin:/opt/slurm/bin:${PATH:-/usr/sbin:/usr/bin:/sbin:/bin}"
export HOME="${HOME:-/root}"

readonly RELEASES=/opt/slipway/releases
readonly LOCK=/run/slipway-load.lock
readonly TRIES=6
readonly TIMEOUT_S=120
readonly LOCK_TIMEOUT_S=900

load::die() { # STATUS MESSAGE HINT
  printf 'slipway: FAULT host=%s step=load-bundle exit=%s %s. Hint: %s\n' "$(uname -n)" "$1" "$2" "$3" >&2
  exit "$1"
}

load::check_args() {
  local usage='load-bundle.sh head|compute REGION PARAMETER'
  [ "$#" -ge 3 ] || load::die 2 "$# arguments, 3 or more expected" "$usage"
  [[ $1 =~ ^(head|compute)$ ]] || load::die 2 "kind '$1' is neither head nor compute" "$usage"
  [[ $2 =~ ^[a-z]{2,4}(-[a-z]+)+-[0-9]$ ]] || load::die 2 "region '$2' is not an AWS region" "$usage"
  [[ $3 =~ ^(/[A-Za-z0-9_.-]+)+$ ]] || load::die 2 "parameter '$3' is not /PATH/NAME" "$usage"
}

# Reads the parameter into URL, SHA256 and VALUES. On failure it prints the reason.
load::read_parameter() { # REGION PARAMETER
  local text line
  URL='' SHA256='' VALUES=()
  text=$(timeout --kill-after=5 "$TIMEOUT_S" aws --region "$1" --output text ssm get-parameter --name "$2" \
    --query Parameter.Value) || return 1
  while IFS= read -r line; do
    case $line in
      BUNDLE_URL=*) URL=${line#*=} ;;
      BUNDLE_SHA256=*) SHA256=${line#*=} ;;
      ?*) VALUES+=("$line") ;;
    esac
  done <<<"$text"
  if [[ ! $SHA256 =~ ^[0-9a-f]{64}$ || ! $URL =~ ^s3://[a-z0-9][a-z0-9.-]+/[A-Za-z0-9!_.*()/-]+$ ]]; then
    printf 'slipway: load-bundle: %s has no BUNDLE_URL=s3://... or no BUNDLE_SHA256=...\n' "$2" >&2
    return 1
  fi
}

# Unpacks the bundle to its release directory, whole or not at all.
load::release() {
  local release=$RELEASES/${SHA256:0:12} actual
  [ ! -d "$release" ] || return 0
  timeout --kill-after=5 "$TIMEOUT_S" aws s3 cp --only-show-errors "$URL" "$WORK/bundle" || return 1
  actual=$(sha256sum <"$WORK/bundle")
  if [ "${actual%% *}" != "$SHA256" ]; then
    printf 'slipway: load-bundle: %s has sha256 %s, expected %s\n' "$URL" "${actual%% *}" "$SHA256" >&2
    return 1
  fi
  rm -rf "$WORK/release"
  mkdir "$WORK/release"
  tar --extract --gzip --no-same-owner --file "$WORK/bundle" --directory "$WORK/release" || return 1
  sync --file-system "$WORK/release" && mv --no-target-directory "$WORK/release" "$release"
}

# Each try reads the parameter again: a deployment may be changing it, and the permissions of this node, right now. At
# boot the instance profile needs some seconds, and many nodes ask at once.
load::with_patience() { # REGION PARAMETER
  local try pause=2
  for ((try = 1; try <= TRIES; try++)); do
    if load::read_parameter "$1" "$2" && load::release; then return 0; fi
    [ "$try" -lt "$TRIES" ] || break
    printf 'slipway: load-bundle: try %s of %s failed, next one in about %s s\n' "$try" "$TRIES" "$pause" >&2
    sleep "$pause.$((RANDOM % 10))"
    pause=$((pause * 2))
  done
  load::die 1 "cannot read parameter $2 or fetch its bundle, after $TRIES tries (see the lines above)" \
    "on this node: 'aws --region $1 ssm get-parameter --name $2', then 'aws s3 cp' of its BUNDLE_URL; check \
the instance policy, the clock, and the network path to SSM and S3 (NAT, endpoints)"
}

load::main() {
  load::check_args "$@"
  mkdir -p "$RELEASES"
  # Only root may open the lock: any process that can open the file can hold the lock.
  (umask 077 && : >>"$LOCK")
  exec {LOCK_FD}>"$LOCK"
  flock --wait "$LOCK_TIMEOUT_S" "$LOCK_FD" ||
    load::die 1 "another load-bundle.sh ran for more than $LOCK_TIMEOUT_S s" "look for it with 'ps ax'"
  rm -rf /opt/slipway/.load.* # left by a killed run: no other run works here while the lock is held
  WORK=$(mktemp -d /opt/slipway/.load.XXXXXX)
  trap 'rm -rf "$WORK"' EXIT
  load::with_patience "$2" "$3"
  rm -rf "$WORK"
  trap - EXIT
  exec {LOCK_FD}>&-
  export SLIPWAY_CONFIGURED_SHA256=${4:-}
  exec "$RELEASES/${SHA256:0:12}/nodes/use-bundle.sh" "$1" "$URL" "$SHA256" "${VALUES[@]}"
}

load::main "$@"
