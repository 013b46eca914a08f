#!/bin/bash
# download-ngc-containers.sh [OPTION ...] [LIST]: imports the container images of LIST to the shared file system.
#
#   LIST          one image a line, docker://REGISTRY/NAME:TAG or docker://REGISTRY#NAME:TAG; "#" starts a comment.
#                 Without it: config/containers.txt of the shared file system.
#   --refresh     import again what has changed in the registry; without it a change is only reported
#   --format F    enroot (.sqsh), apptainer (.sif) or both; without it: CONTAINERS_FORMAT of node.env
#   --at-once N   imports at a time; without it: CONTAINERS_AT_ONCE of node.env, else by the number of processors
#   --into DIR    a directory for the image files; without it: containers/ of the shared file system
#   --compressed  compress enroot's images (2.5 times smaller); without it: CONTAINERS_COMPRESSED of node.env
#   --stall S     give a try up that moves no data for so many seconds (300); --timeout S: a try's longest time (7200)
#   --progress S  seconds between two lines of progress (10); --pause S: before an image's second try, then longer (5)
#
# needs:       enroot (or apptainer), python3, setpriv; for private NGC images NGC_SECRET_ARN in node.env, or
#              NGC_API_KEY in the environment; for ECR a role that may pull
# permission:  any user who may write to containers/ of the shared file system
# how often:   by systemd (slipway-containers.service), and by hand, also at the same time: runs share the work
# on failure:  goes on with the next image; exit 1 at the end, with one line for each image that failed
# where:       images containers/*.sqsh; below logs/ what happened: ngc-download.log (of a user without root:
#              container-downloads/ngc-download.UID.log), container-downloads/IMAGE.log, and the state of each image:
#              container-downloads/status.tsv (status.UID.tsv); list-containers.sh shows the newest of all
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source /opt/slipway/current/nodes/lib/all.sh

# Root's runs write to the common log; a user's log is in a directory that every user may write to. A link or another
# user's file in its place is left alone: then the lines are only printed.
containers::log_to() { # LOGS_DIRECTORY
  local log=$1/ngc-download.log
  [ "$(id -u)" -eq 0 ] || log=$1/container-downloads/ngc-download.$(id -u).log
  if [ ! -L "$log" ] && { [ -O "$log" ] || { [ ! -e "$log" ] && [ -w "${log%/*}" ]; }; }; then
    # tee ignores the signals that stop this script, because the last lines say what happened.
    exec > >(trap '' TERM INT && exec tee -a "$log") 2>&1
  fi
}

containers::main() { # [OPTION ...] [LIST]
  local fsx arguments list=''
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  arguments=(--fsx "$fsx" --format "$(env::get CONTAINERS_FORMAT enroot)" --ngc-secret "$(env::get NGC_SECRET_ARN '')")
  if [ -n "$(env::get CONTAINERS_AT_ONCE '')" ]; then
    arguments+=(--at-once "$(env::get_number CONTAINERS_AT_ONCE '')")
  fi
  [ "$(env::get CONTAINERS_COMPRESSED false)" != true ] || arguments+=(--compressed)
  while [ "$#" -gt 0 ]; do
    case $1 in
      --format | --at-once | --stall | --timeout | --progress | --pause | --into)
        arguments+=("$1" "${2-}")
        shift
        ;;
      -*) arguments+=("$1") ;;
      *) list=$1 ;;
    esac
    shift
  done
  list=${list:-$fsx/config/containers.txt}
  [ -r "$list" ] || log::die "$list cannot be read" "name a list: download-ngc-containers.sh LIST"
  containers::log_to "$fsx/logs"
  # -B: write nothing into the release. Not -m: it would import from the current directory first, which other users may
  # write to.
  PYTHONPATH=$SLIPWAY_BUNDLE exec /usr/bin/python3 -B "$SLIPWAY_BUNDLE/headnode/containers" "${arguments[@]}" -- "$list"
}

containers::main "$@"
