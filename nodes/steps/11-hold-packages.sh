#!/bin/bash
# Keeps kernel, Lustre client, NVIDIA driver, CUDA, NCCL and EFA at the versions of the image.
# needs: apt or dnf
# runs on: headnode compute
# permission: root
# how often: once a node; safe to run again: only what is installed and not yet held is held
# on failure: report
# timeout: 90 s
# takes: about 0.1 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib/all.sh"

# Other updates, security included, are still installed. A new kernel without its Lustre module leaves /fsx unmounted
# (aws-parallelcluster issues 4057, 5746); a new fabric manager with the old driver leaves the GPUs without NVLink
# (issue 3034). nvlsm is the fabric manager's part on B200 and B300; a newer CUDA toolkit or NCCL changes what jobs load.
HOLD_KINDS='^(linux-(aws|generic|image|headers|modules|cloud-tools|tools)|kernel|lustre-client|kmod-lustre|(lib)?nvidia'
HOLD_KINDS+='|kmod-nvidia|nvlsm|cuda-(drivers|toolkit)|libnccl([0-9]|-dev|$)'
readonly HOLD_KINDS+='|efa|libfabric|rdma-core|libnccl-ofi|aws-ofi-nccl|dkms)'
readonly HOLD_APT_CONF=/etc/apt/apt.conf.d/60slipway-hold
readonly HOLD_DNF_CONF=/etc/dnf/dnf.conf
readonly HOLD_DNF_MARK='# slipway: in step with the image; a deliberate update: dnf --disableexcludes=main upgrade NAME'

hold::main() {
  local known=0
  if command -v dpkg-query >/dev/null; then
    hold::apt
    known=1
  fi
  if [ -f "$HOLD_DNF_CONF" ]; then
    hold::dnf
    known=1
  fi
  [ "$known" -eq 1 ] || log::die "neither dpkg nor $HOLD_DNF_CONF is here: nothing holds kernel and driver" \
    "take one of ParallelCluster's images"
}

# The packages of a list that are to stay, sorted.
hold::of() { # LIST: names, one a line
  # grep ends with 1 where nothing matches, which is no fault.
  sort --unique <<<"$1" | grep --extended-regexp "$HOLD_KINDS" || true
}

hold::set() { # NAME ...: what apt-mark hold does, without apt's cache, which takes seconds to build
  printf '%s hold\n' "$@" | timeout 20 dpkg --set-selections
}

hold::apt() {
  local list wanted
  # shellcheck disable=SC2016  # dpkg-query fills these in
  list=$(dpkg-query --show --showformat '${db:Status-Status} ${db:Status-Want} ${binary:Package}\n') ||
    log::die "dpkg-query cannot list the installed packages" "run 'dpkg --audit' on this node"
  # apt-get upgrade leaves held packages alone; this list also keeps unattended-upgrades from installing new ones.
  file::put - "$HOLD_APT_CONF" 0644 <<CONF
// Kernel, Lustre client, NVIDIA driver, CUDA, NCCL and EFA stay at the image's versions; to update: apt-mark unhold NAME
Unattended-Upgrade::Package-Blacklist { "${HOLD_KINDS#^}"; };
CONF
  wanted=$(hold::of "$(sed --quiet 's/^installed install //p' <<<"$list")")
  if [ -z "$wanted" ]; then
    log::info "nothing to hold that is not held"
    return 0
  fi
  mapfile -t wanted <<<"$wanted"
  # At boot another program may hold the package database's lock.
  retry::run 3 5 hold::set "${wanted[@]}" ||
    log::die "cannot hold packages: ${wanted[*]}" \
      "is another apt running? 'fuser /var/lib/dpkg/lock', then run this step again"
  log::info "held: ${wanted[*]}"
}

# One line of dnf.conf, first in its section [main]; the site's own exclusions stay in it.
hold::dnf() {
  local installed line own='' kept=() inside=0
  installed=$(rpm --query --all --queryformat '%{NAME}\n') ||
    log::die "rpm cannot list the installed packages" "run 'rpm --query --all' on this node"
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
      "$HOLD_DNF_MARK" | '[main]') inside=0 ;;
      excludepkgs=* | exclude=*)
        own+="${line#*=} "
        inside=1
        ;;
      [[:space:]]*) if [ "$inside" -eq 1 ]; then own+="$line "; else kept+=("$line"); fi ;;
      *)
        kept+=("$line")
        inside=0
        ;;
    esac
  done <"$HOLD_DNF_CONF"
  own=$(printf '%s\n' "${own//,/ }" "$(hold::of "$installed")" | hold::words)
  printf '%s\n' '[main]' "$HOLD_DNF_MARK" "excludepkgs=$own" ${kept[@]+"${kept[@]}"} | file::put - "$HOLD_DNF_CONF" 0644
  log::info "dnf leaves alone: ${own:-nothing}"
}

# Standard input as one line of sorted words, each once.
hold::words() { tr --squeeze-repeats ' \t' '\n' | sort --unique | sed '/^$/d' | paste --serial --delimiters ' '; }

hold::main
