#!/bin/bash
# Turns enroot and pyxis on: directories, enroot.conf, Slurm's plug-in stack.
# needs: enroot and spank_pyxis.so of the image; without enroot it does nothing
# runs on: headnode compute
# permission: root
# how often: once a node; safe to run again: Slurm reads its configuration again only when it changed
# on failure: report
# timeout: 90 s
# takes: about 0.4 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib/all.sh"

# enroot's configuration and directories are each node's own; Slurm's plug-in stack is below /opt/slurm, which the head
# node shares with all others. Source: ParallelCluster guide, "Running containerized jobs with Pyxis" (read 2026-11).

readonly RUNTIME_STORAGE=/var/lib/enroot
readonly RUNTIME_NVME=/scratch
readonly RUNTIME_SLURM=/opt/slurm/etc
readonly RUNTIME_CONF=$RUNTIME_SLURM/plugstack.conf.d/pyxis.conf
readonly RUNTIME_PLUGINS=(/usr/local/lib/slurm/spank_pyxis.so /opt/slurm/lib/slurm/spank_pyxis.so)
readonly RUNTIME_TIMEOUT_S=30
readonly RUNTIME_NOTE=$SLIPWAY_STATE_DIR/pyxis.sha256
# enroot's hooks for jobs of Slurm: PMIx in the container, MASTER_ADDR and WORLD_SIZE for PyTorch. Its package brings them,
# switched off; ParallelCluster's cookbook (3.12) switches them on for Ubuntu alone.
readonly RUNTIME_HOOKS=(/usr/share/enroot/hooks.d/50-slurm-{pmi,pytorch}.sh)
readonly RUNTIME_NAMESPACES=/proc/sys/kernel/apparmor_restrict_unprivileged_userns

# The instance's NVMe if every user may write to it, else the root disk.
runtime::storage() {
  if mountpoint --quiet "$RUNTIME_NVME" && (($((8#$(stat --format %a "$RUNTIME_NVME"))) & 2)); then
    printf '%s' "$RUNTIME_NVME"
  else
    printf '%s' "$RUNTIME_STORAGE"
  fi
}

runtime::enroot() {
  local storage
  storage=$(runtime::storage)
  file::directory /etc/enroot 0755
  file::render enroot.conf.j2 /etc/enroot/enroot.conf 0644 "STORAGE=$storage"
  file::render slipway-containers.conf.j2 /etc/tmpfiles.d/slipway-containers.conf 0644 "STORAGE=$storage"
  # Before systemd-tmpfiles, which would keep what another user has put into such a directory.
  file::directory /run/enroot 1777
  [ "$storage" != "$RUNTIME_STORAGE" ] || file::directory "$storage" 1777
  file::private /run/enroot/user-0 0:0
  file::private "$storage/enroot-user-0" 0:0
  timeout "$RUNTIME_TIMEOUT_S" systemd-tmpfiles --create /etc/tmpfiles.d/slipway-containers.conf
}

runtime::hooks() {
  local hook
  file::directory /etc/enroot/hooks.d 0755
  for hook in "${RUNTIME_HOOKS[@]}"; do
    [ ! -e "$hook" ] || [ -e "/etc/enroot/hooks.d/${hook##*/}" ] || file::link "$hook" "/etc/enroot/hooks.d/${hook##*/}"
  done
  command -v squashfuse >/dev/null ||
    log::info "squashfuse is not in this image: 'enroot start FILE.sqsh' fails here, srun --container-image does not need it"
}

# Whether jobs can start from the image file instead of unpacking it: pyxis since 0.22 knows the option, and an older one
# ends every srun for it, with or without an image; it needs enroot 4.1 and its programs.
runtime::squashfuse() { # PLUGIN
  local version
  [ "$(env::get CONTAINERS_SQUASHFUSE true)" = true ] || return 1
  grep --quiet --text --fixed-strings use_squashfuse= "$1" || return 1
  command -v squashfuse >/dev/null && command -v fuse-overlayfs >/dev/null || return 1
  version=$(timeout "$RUNTIME_TIMEOUT_S" enroot version) || return 1
  [[ $version =~ ^([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2] >= 4001))
}

# Ubuntu 24.04 forbids what enroot needs: user namespaces of unprivileged users (enroot issue 247).
runtime::namespaces() {
  [ -e "$RUNTIME_NAMESPACES" ] || return 0
  file::put - /etc/sysctl.d/90-slipway-containers.conf 0644 <<'CONF'
# Written by Slipway: enroot starts containers in user namespaces of users without rights.
kernel.apparmor_restrict_unprivileged_userns = 0
CONF
  [ "$(<"$RUNTIME_NAMESPACES")" = 0 ] || printf '0\n' >"$RUNTIME_NAMESPACES"
}

runtime::plugin() { # prints the plug-in's path
  local plugin
  for plugin in "${RUNTIME_PLUGINS[@]}"; do
    if [ -f "$plugin" ]; then
      printf '%s' "$plugin"
      return 0
    fi
  done
  log::die "spank_pyxis.so is on none of ${RUNTIME_PLUGINS[*]}" \
    "take ParallelCluster's image of 3.11 or newer, install pyxis in yours, or set containers.pyxis: false"
}

# Includes the directory of the plug-ins; lines of the site stay.
runtime::plugstack() {
  local stack=$RUNTIME_SLURM/plugstack.conf include="include $RUNTIME_SLURM/plugstack.conf.d/*.conf"
  file::directory "$stack.d" 0755
  if [ ! -f "$stack" ]; then
    printf '%s\n' "$include" | file::put - "$stack" 0644
  elif ! grep --quiet "^include .*plugstack.conf.d/" "$stack"; then
    printf '%s\n%s\n' "$(<"$stack")" "$include" | file::put - "$stack" 0644
  fi
}

# Slurm reads its configuration only when it changed. The note is written afterwards, so a killed run is repeated.
runtime::reconfigure() {
  local wanted
  wanted=$({ cat "$RUNTIME_SLURM"/{plugstack.conf,plugstack.conf.d/*.conf} 2>/dev/null || true; } | sha256sum)
  if [ "$wanted" = "$(cat "$RUNTIME_NOTE" 2>/dev/null)" ] || ! systemctl is-active --quiet slurmctld; then
    return 0
  fi
  timeout --kill-after=5 "$RUNTIME_TIMEOUT_S" scontrol reconfigure ||
    log::die "slurmctld did not read its configuration again" \
      "run 'scontrol reconfigure', and see /var/log/slurmctld.log"
  mkdir -p "$SLIPWAY_STATE_DIR"
  printf '%s\n' "$wanted" | file::put - "$RUNTIME_NOTE" 0644
}

# Whose containers of `--container-name` are: the job's, which go away with it, or all jobs'. An unpacked NGC image has
# 20 GB: with pyxis' own default, global, they fill /scratch.
runtime::scope() {
  local scope
  scope=$(env::get CONTAINERS_SCOPE job)
  [[ $scope =~ ^(job|global)$ ]] ||
    log::die "$SLIPWAY_NODE_ENV: CONTAINERS_SCOPE = '$scope': neither job nor global" \
      "correct CONTAINERS_SCOPE in /etc/slipway/site.env"
  printf '%s' "$scope"
}

runtime::head() { # PYXIS
  local conf=$RUNTIME_CONF plugin options
  if [ "$1" = true ]; then
    options=" container_scope=$(runtime::scope)"
    plugin=$(runtime::plugin)
    runtime::plugstack
    ! runtime::squashfuse "$plugin" || options+=' use_squashfuse=1'
    file::render pyxis.conf.j2 "$conf" 0644 "PLUGIN=$plugin" "OPTIONS=$options"
  elif [ -f "$RUNTIME_NOTE" ] && grep --quiet --no-messages '^# Written by Slipway' "$conf"; then
    rm -f "$conf"
    log::info "removed $conf"
  fi
  # Never switched on: Slurm has nothing to read.
  [ "$1" = true ] || [ -f "$RUNTIME_NOTE" ] || return 0
  runtime::reconfigure
}

# The head node writes pyxis.conf for all nodes.
runtime::compute() {
  local plugin
  plugin=$(runtime::plugin)
  if grep --quiet --no-messages use_squashfuse=1 "$RUNTIME_CONF" && ! runtime::squashfuse "$plugin"; then
    log::die "$RUNTIME_CONF has use_squashfuse=1, which this node's pyxis or enroot does not know: jobs fail here" \
      "the nodes' images differ: write CONTAINERS_SQUASHFUSE=false to /etc/slipway/site.env on the head node and run \
/opt/slipway/current/nodes/steps/35-container-runtime.sh there"
  fi
}

runtime::main() {
  local pyxis
  env::load "$SLIPWAY_NODE_ENV"
  pyxis=$(env::get CONTAINERS_PYXIS true)
  [[ $pyxis =~ ^(true|false)$ ]] ||
    log::die "$SLIPWAY_NODE_ENV: CONTAINERS_PYXIS = '$pyxis': neither true nor false" \
      "correct CONTAINERS_PYXIS in /etc/slipway/site.env"
  if ! command -v enroot >/dev/null; then
    log::info "enroot is not in this image: nothing to configure"
    return 0
  fi
  runtime::enroot
  runtime::hooks
  runtime::namespaces
  if [ ! -d "$RUNTIME_SLURM" ]; then
    log::info "no Slurm in $RUNTIME_SLURM: pyxis is not configured"
  elif [ "$(env::get NODE_KIND)" = headnode ]; then
    runtime::head "$pyxis"
  elif [ "$pyxis" = true ]; then
    runtime::compute
  fi
}

runtime::main
