#!/bin/bash
# download-ngc-containers.sh [LIST]: imports the container images that LIST names to the shared file system.
#
#   LIST  one image a line, docker://REGISTRY/NAME:TAG or docker://REGISTRY#NAME:TAG; "#" starts a comment line.
#         Without it: config/containers.txt of the shared file system.
#
# needs:       enroot; for private NGC images NGC_SECRET_ARN in node.env, or NGC_API_KEY in the environment
# permission:  any user who may write to containers/ of the shared file system
# how often:   by systemd (slipway-containers.service), and by hand; an image that is there is not fetched again
# on failure:  goes on with the next image; exit 1 at the end, with one line for each image that failed
# where:       images containers/*.sqsh, what happened logs/ngc-download.log and logs/container-downloads/*.log, the state
#              of each image logs/container-downloads/status.tsv
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../bootstrap/common.sh
source /opt/slipway/current/bootstrap/common.sh

readonly IMAGE_TIMEOUT_S=3600
readonly IMAGE_TRIES=3
readonly SECRET_TIMEOUT_S=30

containers::main() { # [LIST]
  local image failed=0
  env::load "$SLIPWAY_NODE_ENV"
  FSX=$(env::get_path FSX_MOUNT /fsx)
  LIST=${1:-$FSX/config/containers.txt}
  IMAGES=$FSX/containers
  LOGS=$FSX/logs/container-downloads
  STATUS=$LOGS/status.tsv
  [ -r "$LIST" ] || log::die "$LIST cannot be read" "name a list: download-ngc-containers.sh LIST"
  containers::log_to "$FSX/logs/ngc-download.log"
  WORK=$(mktemp -d "$(containers::scratch)/slipway-enroot.XXXXXX")
  PARTIAL=''
  trap 'rm -rf "$WORK" ${PARTIAL:+"$PARTIAL"}' EXIT
  containers::lock
  # What this user's killed runs left.
  find "$IMAGES" -maxdepth 1 -name '.*.partial.??????' -user "$(id -u)" -exec rm -rf {} +
  containers::read_list
  log::info "$(date --utc +%Y-%m-%dT%H:%M:%SZ) ${#QUEUE[@]} images in $LIST"
  containers::credentials
  for image in ${QUEUE[@]+"${QUEUE[@]}"}; do
    containers::import "$image" || failed=$((failed + 1))
  done
  log::info "$((${#QUEUE[@]} - failed)) of ${#QUEUE[@]} images are there, see $IMAGES/list-containers.sh"
  [ "$failed" -eq 0 ]
}

# The common log belongs to root; a user who may not write to it gets the same lines on the screen only.
containers::log_to() { # FILE
  if [ -w "$1" ] || { [ ! -e "$1" ] && [ -w "${1%/*}" ]; }; then
    exec > >(exec tee -a "$1") 2>&1
  fi
}

# Local disks, the instance's NVMe first: unpacking layers on Lustre is many times slower.
containers::scratch() {
  local directory
  for directory in /scratch /local_scratch /var/tmp; do
    if [ -d "$directory" ] && [ -w "$directory" ]; then
      printf '%s' "$directory"
      return 0
    fi
  done
  printf '/tmp'
}

containers::read_list() { # sets QUEUE
  local line number=0
  QUEUE=()
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    line=${line//[[:space:]]/}
    [[ -z $line || $line == '#'* ]] && continue
    if [[ ! $line =~ ^docker://[A-Za-z0-9._:#/@-]+$ ]]; then
      log::warn "$LIST:$number: $(printf %q "$line"): not docker://REGISTRY/NAME:TAG; left out"
      continue
    fi
    QUEUE+=("$line")
  done <"$LIST"
}

# REGISTRY#NAME is what every enroot understands; the form with a slash only works since 4.0.
containers::uri() { # IMAGE
  if [[ $1 =~ ^docker://([^/#]+[.:][^/#]*)/(.+)$ ]]; then
    printf 'docker://%s#%s' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
  else
    printf '%s' "$1"
  fi
}

containers::file_name() { # IMAGE: nvcr.io_nvidia_pytorch-24.01-py3.sqsh
  local name=${1#docker://}
  name=${name//[\/#]/_}
  printf '%s.sqsh' "${name//[:@]/-}"
}

# enroot expands $NGC_API_KEY itself: the key is in this process's environment only, in no file and no argument.
containers::credentials() {
  local secret
  secret=$(env::get NGC_SECRET_ARN '')
  if [ -z "${NGC_API_KEY:-}" ] && [ -n "$secret" ]; then
    NGC_API_KEY=$(timeout "$SECRET_TIMEOUT_S" aws secretsmanager get-secret-value --secret-id "$secret" \
      --query SecretString --output text) ||
      log::warn "cannot read the secret $secret: private images will fail; does this node's policy allow it?"
  fi
  [ -n "${NGC_API_KEY:-}" ] || return 0
  export NGC_API_KEY ENROOT_CONFIG_PATH=$WORK/config
  mkdir -m 0700 "$ENROOT_CONFIG_PATH"
  # shellcheck disable=SC2016  # both words are for enroot to expand
  printf 'machine %s login $oauthtoken password $NGC_API_KEY\n' nvcr.io authn.nvidia.com >"$ENROOT_CONFIG_PATH/.credentials"
}

# One line an image in status.tsv. It belongs to whoever imported first; other users' imports show in the images alone.
containers::state() { # FILE STATE DETAIL
  local kept=''
  [ ! -r "$STATUS" ] || kept=$(grep --invert-match "^${1//./\\.}"$'\t' "$STATUS" || true)
  {
    printf '%s\t%s\t%s\n' "$1" "$2" "$3"
    [ -z "$kept" ] || printf '%s\n' "$kept"
  } | sort >"$WORK/status"
  if ! cmp --silent "$WORK/status" "$STATUS" && containers::mine "$STATUS"; then
    cp "$WORK/status" "$STATUS.new"
    mv --force "$STATUS.new" "$STATUS"
  fi
}

# In a sticky directory the kernel lets even root write only to its own files: ask for the owner, not for the right.
containers::mine() { # FILE
  [ ! -e "$1" ] || [ -O "$1" ]
}

# One run at a time. The directory itself is locked: a lock file of one user would keep the others out.
containers::lock() {
  local lock_fd
  exec {lock_fd}<"$IMAGES"
  flock --nonblock "$lock_fd" && return 0
  log::info "another import is running: waiting for it"
  flock --wait "$IMAGE_TIMEOUT_S" "$lock_fd" ||
    log::die "another import ran for more than $IMAGE_TIMEOUT_S s" "look for it with 'ps ax', and in $FSX/logs/ngc-download.log"
}

# Beside its place, in a directory of its own, checked, then renamed: a killed import never looks like an image.
containers::import() { # IMAGE
  local name log status=0
  name=$(containers::file_name "$1")
  log=$LOGS/${name%.sqsh}.log
  containers::mine "$log" || log=$LOGS/${name%.sqsh}.$(id -un).log
  if [ -f "$IMAGES/$name" ]; then
    log::info "$name is there already"
    containers::state "$name" ready "$1"
    return 0
  fi
  PARTIAL=$(mktemp -d "$IMAGES/.$name.partial.XXXXXX")
  containers::state "$name" importing "$1"
  log::info "importing $name (log: $log)"
  containers::fetch "$(containers::uri "$1")" "$PARTIAL/$name" >"$log" 2>&1 || status=$?
  containers::finish "$status" "$1" "$name" "$PARTIAL/$name" "$log" || status=1
  rm -rf "$PARTIAL"
  return "$((status != 0))"
}

containers::fetch() { # URI PARTIAL
  local try
  command -v enroot >/dev/null || {
    printf 'enroot is not installed on this node\n'
    return 127
  }
  export ENROOT_TEMP_PATH=$WORK/tmp ENROOT_CACHE_PATH=$WORK/cache ENROOT_DATA_PATH=$WORK/data ENROOT_TRANSFER_RETRIES=5
  mkdir -p "$ENROOT_TEMP_PATH" "$ENROOT_CACHE_PATH" "$ENROOT_DATA_PATH"
  for ((try = 1; try <= IMAGE_TRIES; try++)); do
    rm -f "$2"
    if timeout --kill-after=30 "$IMAGE_TIMEOUT_S" enroot import --output "$2" "$1" </dev/null; then
      return 0
    fi
    printf 'try %s of %s failed\n' "$try" "$IMAGE_TRIES"
    [ "$try" -eq "$IMAGE_TRIES" ] || sleep "$((try * 10))"
  done
  # enroot says nothing at all when the registry refuses the key.
  printf 'all tries failed. No message above? Then the registry refused: is the NGC key right and allowed to pull this image?\n'
  return 1
}

containers::finish() { # STATUS IMAGE NAME PARTIAL LOG
  if [ "$1" -eq 0 ] && command -v unsquashfs >/dev/null && ! unsquashfs -s "$4" >>"$5" 2>&1; then
    rm -f "$4"
    printf 'what was imported is no whole squashfs image\n' >>"$5"
    set -- 1 "${@:2}"
  fi
  if [ "$1" -ne 0 ] || [ ! -s "$4" ]; then
    rm -f "$4"
    containers::state "$3" failed "$(tail --lines=1 "$5" | tr -d '\t')"
    log::warn "$3 failed: $(tail --lines=1 "$5") (log: $5)"
    return 1
  fi
  chmod 0644 "$4"
  mv --no-target-directory "$4" "$IMAGES/$3"
  containers::state "$3" ready "$2"
  log::info "$3 is there"
}

containers::main "$@"
