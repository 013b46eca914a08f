# shellcheck shell=bash
# Debian and Ubuntu packages of the local hosts. Sourced by setup.sh.
# Installs only what is missing; nothing that gets installed is started, now or at the next boot.

# package:command pairs; a package counts as present when its command (or file) is there, however it got there.
readonly DEBIAN_HOST_PACKAGES=(
  slurmctld:slurmctld slurmd:slurmd slurm-client:srun munge:munged openmpi-bin:mpirun libopenmpi-dev:mpicc gcc:gcc
  iproute2:ip systemd:systemctl systemd-container:systemd-nspawn dbus:dbus-daemon util-linux:unshare python3:/usr/bin/python3
  libslurm-dev:/usr/include/slurm/spank.h squashfs-tools:mksquashfs parallel:parallel jq:jq zstd:zstd pigz:pigz
  docker-registry:docker-registry skopeo:skopeo umoci:umoci openssl:openssl ca-certificates:update-ca-certificates
  g++:g++ make:make autoconf:autoreconf automake:automake libtool:libtoolize
  sudo:sudo iptables:iptables prometheus:prometheus prometheus-node-exporter:prometheus-node-exporter procps:ps curl:curl
)

# For tests only: a browser that opens the acceptance report, roots of other distributions, Slurm's accounting database,
# the program that measures storage.
readonly DEBIAN_TEST_PACKAGES=(chromium:chromium mmdebstrap:mmdebstrap slurmdbd:slurmdbd mariadb-server:mariadbd fio:fio)

# Services of the packages above. The local hosts and the tests start them; on the machine they would only take ports.
readonly DEBIAN_UNITS=(slurmctld slurmd slurmdbd munge mariadb prometheus prometheus-node-exporter docker-registry)

# After mktemp's own line, which names the place and why nothing can be made there.
readonly NO_TEMPORARY="${TMPDIR:-/tmp} takes no temporary file (see above). Hint: make room there, or set TMPDIR to another folder"

# debian::missing PAIR...: the packages whose command is missing, one a line.
debian::missing() {
  local pair
  for pair in "$@"; do
    [[ -e ${pair#*:} ]] || PATH=$PATH:/usr/sbin:/sbin command -v "${pair#*:}" >/dev/null || printf '%s\n' "${pair%%:*}"
  done
}

# debian::install_if_root PACKAGE...: installs them when this is root on a machine with apt; otherwise prints what to type.
debian::install_if_root() {
  if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
    printf 'setup: missing: %s\n' "$*" >&2
    printf 'setup: Hint: sudo apt-get install --no-install-recommends %s\n' "$*" >&2
    return 3
  fi
  printf 'setup: Debian packages %s ...\n' "$*"
  local policy=/usr/sbin/policy-rc.d log made=0 rc=0
  log=$(mktemp "${TMPDIR:-/tmp}/slipway-apt.XXXXXX") || {
    printf 'setup: FAULT %s\n' "$NO_TEMPORARY" >&2
    return 3
  }
  # With 101 Debian's package scripts start no service. A policy that the machine has is kept.
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    made=1
  fi
  { apt-get update --quiet && DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends "$@"; } >"$log" 2>&1 || rc=$?
  ((made == 0)) || rm -f "$policy"
  if ((rc != 0)); then
    tail -n 15 "$log" >&2
    printf 'setup: FAULT apt-get failed (exit %s), log %s\n' "$rc" "$log" >&2
    return 3
  fi
  rm -f "$log"
  debian::disable "$@"
}

# debian::disable PACKAGE...: their services do not start at the next boot.
debian::disable() {
  local unit
  for unit in "${DEBIAN_UNITS[@]}"; do
    [[ ! -d /run/systemd/system || " $* " != *" ${unit/%mariadb/mariadb-server} "* ]] ||
      systemctl disable --quiet "$unit" 2>/dev/null || true
  done
}

debian::host_packages() {
  local missing=()
  mapfile -t missing < <(debian::missing "${DEBIAN_HOST_PACKAGES[@]}")
  if ((${#missing[@]} == 0)); then
    printf 'setup: Debian packages are there\n'
    return
  fi
  debian::install_if_root "${missing[@]}"
}

# Never fails: the tests that need one of these are skipped without it, and name it.
debian::test_packages() {
  local missing=()
  mapfile -t missing < <(debian::missing "${DEBIAN_TEST_PACKAGES[@]}")
  ((${#missing[@]} == 0)) || debian::install_if_root "${missing[@]}" ||
    printf 'setup: without %s some tests are skipped\n' "${missing[*]}" >&2
}
