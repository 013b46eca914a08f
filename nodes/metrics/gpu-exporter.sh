#!/bin/bash
# gpu-exporter.sh prepare | run | verify | stopped: DCGM's exporter on port 9400, from the AMI's program or a container.
# needs: a GPU's driver; without /usr/local/bin/dcgm-exporter also enroot, unsquashfs, 2 GB below /var/lib/slipway, and
#   the registry or a file of the mirror: dcgm-exporter-VERSION.sqsh, made by "enroot import" of the digest in dcgm.tsv
# permission: root
# how often: by slipway-gpu-exporter.service only; an image is fetched once, and the next run continues a killed one
# on failure: exit 1: systemd tries again after 60 s, five times an hour at most; background/gpu-exporter.json says why
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib/all.sh"

readonly PROGRAM=/usr/local/bin/dcgm-exporter
readonly PINS=$SLIPWAY_BUNDLE/nodes/metrics/dcgm.tsv
readonly SITE_COUNTERS=/etc/slipway/dcgm-counters.csv
readonly COUNTERS_INSIDE=/etc/dcgm-exporter/default-counters.csv
readonly HOME_DIR=$SLIPWAY_STATE_DIR/gpu-exporter
readonly LOG=$SLIPWAY_LOG_DIR/gpu-exporter.log
readonly START_MARK='a start of the GPU exporter'
readonly URL=http://127.0.0.1:9400/metrics
readonly INTERVAL_MS=15000 # as often as Prometheus asks
declare -A PIN=()          # the exporter's image: see software.sh
readonly IMPORT_TIMEOUT_S=1200 VERIFY_TIMEOUT_S=120 NVIDIA_SMI_TIMEOUT_S=20

# No settings or credentials of root, and nothing on the shared file system.
export ENROOT_DATA_PATH=$HOME_DIR/data ENROOT_CACHE_PATH=$HOME_DIR/cache ENROOT_TEMP_PATH=$HOME_DIR/tmp
export ENROOT_RUNTIME_PATH=/run/slipway/enroot ENROOT_CONFIG_PATH=$HOME_DIR/config ENROOT_TRANSFER_RETRIES=3

gpu_exporter::status() { # STATE DETAIL [HINT]
  background::status gpu-exporter "$1" "$2" "$LOG" "${3:-}"
}

# Fills PIN from the site's software.tsv, else from dcgm.tsv.
gpu_exporter::pin() {
  local kind version sha256 image
  ! software::find PIN dcgm-exporter || return 0
  while IFS=$'\t' read -r kind version sha256 image; do
    [ "$kind" != image ] || break
  done <"$PINS"
  PIN=([name]=dcgm-exporter [version]=$version [sha256]=$sha256 [url]=docker://$image)
}

# A DCGM that does not know the GPU gives no metrics of it, or none at all.
gpu_exporter::check_gpu() {
  local gpu kind word least source dcgm=${PIN[version]%%-*}
  gpu=$(timeout --kill-after=5 "$NVIDIA_SMI_TIMEOUT_S" nvidia-smi --query-gpu=name --format=csv,noheader) ||
    log::die "nvidia-smi does not answer" \
      "is the driver loaded? run 'nvidia-smi' and 'dmesg | grep -i nvrm' on this node"
  while IFS=$'\t' read -r kind word least source; do
    [[ $kind == minimum && $gpu =~ (^|[ -])$word([ -]|$) ]] || continue
    [ "$(printf '%s\n%s\n' "$least" "$dcgm" | sort --version-sort | head --lines=1)" = "$least" ] || log::die \
      "DCGM $dcgm does not know the $word: it needs $least ($source)" \
      "correct the line dcgm-exporter of $SLIPWAY_SITE_SOFTWARE"
  done <"$PINS"
}

gpu_exporter::import() { # SQSH_FILE
  local image=${PIN[url]#docker://} digest=${PIN[sha256]} file
  if [[ ${PIN[url]} != docker://* ]] || gpu_exporter::in_mirror; then
    software::download PIN
    file=${PIN[file]}
  else
    file=$HOME_DIR/import.sqsh
    rm -rf "$file" "$ENROOT_TEMP_PATH"
    mkdir -p "$ENROOT_TEMP_PATH"
    # The digest in the tag's place: every version of enroot takes it, and hands it on as it is.
    timeout --kill-after=30 "$IMPORT_TIMEOUT_S" enroot import --output "$file" "docker://$image:sha256:$digest" ||
      log::die "enroot cannot import $image:sha256:${digest:0:12}" \
        "is the registry reachable? else put dcgm-exporter-${PIN[version]}.sqsh into SOFTWARE_MIRROR, or the exporter \
into the AMI"
  fi
  unsquashfs -s "$file" >/dev/null ||
    log::die "$file is not a squash file" "remove it and start slipway-gpu-exporter.service"
  mv --no-target-directory "$file" "$1"
}

# The mirror may have the image as a file; then PIN is that file.
gpu_exporter::in_mirror() {
  local mirror file=dcgm-exporter-${PIN[version]}.sqsh
  mirror=$(env::get SOFTWARE_MIRROR '')
  [ -n "$mirror" ] && software::mirror_sum "$mirror" "$file" fetch::once >/dev/null || return 1
  PIN[url]=$mirror/$file
}

gpu_exporter::prepare() {
  local name file
  env::load "$SLIPWAY_NODE_ENV"
  software::fetch_list_once gpu-exporter
  log::info "$START_MARK"
  gpu_exporter::status running "getting the exporter ready"
  [ ! -x "$PROGRAM" ] || return 0
  command -v enroot >/dev/null || log::die "there is no enroot and no $PROGRAM on this node: no GPU metrics" \
    "put DCGM's exporter into the AMI at $PROGRAM, or use an AMI with enroot"
  command -v nvidia-container-cli >/dev/null ||
    log::die "nvidia-container-cli is missing: the exporter's container would have no GPU" \
      "see $SLIPWAY_LOG_DIR/16-gpu-containers.log on this node"
  gpu_exporter::pin
  gpu_exporter::check_gpu
  name=${PIN[sha256]:0:12} file=$HOME_DIR/${PIN[sha256]:0:12}.sqsh
  mkdir -p "$ENROOT_DATA_PATH" "$ENROOT_CACHE_PATH" "$ENROOT_CONFIG_PATH"
  file::lock "$HOME_DIR/lock"
  exec 9>"$HOME_DIR/lock"
  flock --wait "$IMPORT_TIMEOUT_S" 9 || log::die "another run holds $HOME_DIR/lock" "see $LOG"
  if [ ! -d "$ENROOT_DATA_PATH/$name" ]; then
    [ -f "$file" ] || gpu_exporter::import "$file"
    # Unpacked under another name, so that a killed run never leaves half a container under the right one.
    rm -rf "$ENROOT_DATA_PATH/unpacking"
    timeout --kill-after=30 "$IMPORT_TIMEOUT_S" enroot create --name unpacking "$file" ||
      log::die "enroot cannot unpack $file" \
        "is $HOME_DIR full? see 'df -h $HOME_DIR'; remove the file and start the unit again"
    mv --no-target-directory "$ENROOT_DATA_PATH/unpacking" "$ENROOT_DATA_PATH/$name"
  fi
  find "$ENROOT_DATA_PATH" -mindepth 1 -maxdepth 1 ! -name "$name" -exec rm -rf {} +
  rm -rf "$HOME_DIR"/*.sqsh "$ENROOT_CACHE_PATH" "$ENROOT_TEMP_PATH"
  file::link "$name" "$HOME_DIR/current"
}

gpu_exporter::run() {
  local counters=$SLIPWAY_BUNDLE/nodes/metrics/dcgm-counters.csv
  [ ! -r "$SITE_COUNTERS" ] || counters=$SITE_COUNTERS
  export DCGM_EXPORTER_LISTEN=:9400 DCGM_EXPORTER_INTERVAL=$INTERVAL_MS DCGM_EXPORTER_COLLECTORS=$counters
  [ ! -x "$PROGRAM" ] || exec "$PROGRAM"
  mkdir -p "$ENROOT_RUNTIME_PATH"
  # NO_SETCAP: the image's start script would ask for a capability that a container of enroot has not.
  exec enroot start --rw --mount "$counters:$COUNTERS_INSIDE" --env DCGM_EXPORTER_LISTEN --env DCGM_EXPORTER_INTERVAL \
    --env "DCGM_EXPORTER_COLLECTORS=$COUNTERS_INSIDE" --env NO_SETCAP=1 --env NVIDIA_VISIBLE_DEVICES=all \
    "$(readlink "$HOME_DIR/current")"
}

gpu_exporter::verify() {
  local end=$((SECONDS + VERIFY_TIMEOUT_S))
  until curl --fail --silent --max-time 5 --noproxy '*' --output /dev/null "$URL"; do
    kill -0 "$MAINPID" 2>/dev/null ||
      log::die "the exporter ended at once (see the lines above)" "read $LOG and 'nvidia-smi'"
    [ "$SECONDS" -lt "$end" ] || log::die "no answer on $URL after $VERIFY_TIMEOUT_S s" "read $LOG and 'nvidia-smi'"
    sleep 1
  done
  gpu_exporter::status 'done' "answers on $URL"
}

# systemd calls it after every end. The reason is the last log::die of this start, if the log has one.
gpu_exporter::stopped() {
  [ "${SERVICE_RESULT:-success}" != success ] || return 0
  local died said hint
  died=$(awk -v mark="slipway: $START_MARK" '
    $0 == mark { last = died = "" }
    /^slipway: / { last = substr($0, 10) }
    /^slipway-hint: / { died = last "\n" substr($0, 15) }
    END { print died }' "$LOG")
  said=${died%%$'\n'*} hint=${died#*$'\n'}
  gpu_exporter::status failed "$SERVICE_RESULT: ${said:-the exporter ended}" \
    "${hint:-read $LOG, repair, then run: sudo systemctl restart slipway-gpu-exporter}"
}

case ${1:-} in
  prepare | run | verify | stopped) "gpu_exporter::$1" ;;
  *) log::die "usage: gpu-exporter.sh prepare | run | verify | stopped" "start slipway-gpu-exporter.service instead" ;;
esac
