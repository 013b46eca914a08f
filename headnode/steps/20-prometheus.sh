#!/bin/bash
# Starts Prometheus on the head node (127.0.0.1:9090), with remote write to AMP where it is set.
# needs: systemd, the pinned prometheus release or a mirror
# permission: root
# how often: once a head node; safe to run again: restarted only when its files changed
# on failure: report
# timeout: 300 s
# takes: about 3.5 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

readonly UNIT=slipway-prometheus.service
readonly UNIT_FILE=/etc/systemd/system/$UNIT
readonly CONFIG=/etc/prometheus/prometheus.yml
readonly PROGRAMS=$SLIPWAY_SOFTWARE_DIR/prometheus/current
readonly DATA_DIR=/var/lib/prometheus/slipway

# promtool checks the new configuration before it replaces the one in use.
prometheus::config() {
  local candidate=/etc/prometheus/.candidate.yml
  file::render prometheus.yml.j2 "$candidate" 0644
  if [ -x "$PROGRAMS/promtool" ]; then
    "$PROGRAMS/promtool" check config "$candidate" ||
      log::die "promtool refuses the configuration (see the lines above)" \
        "look at AMP_REMOTE_WRITE_URL in $SLIPWAY_NODE_ENV"
  fi
  file::put "$candidate" "$CONFIG" 0644
  rm -f "$candidate"
}

prometheus::main() {
  local days
  env::load "$SLIPWAY_NODE_ENV"
  days=$(env::get_number PROMETHEUS_RETENTION_DAYS 30)
  # First what does not come from outside: 25-slurm-targets writes there, also while the release cannot be fetched.
  unit::user prometheus
  file::directory /etc/prometheus 0755
  file::directory /etc/prometheus/rules 0755
  file::directory /etc/prometheus/targets 0755
  file::directory /var/lib/prometheus 0755
  file::directory "$DATA_DIR" 0755 prometheus:prometheus
  software::install prometheus prometheus
  prometheus::config
  file::render slipway-prometheus.service.j2 "$UNIT_FILE" 0644 "PROMETHEUS_RETENTION_DAYS=$days"
  unit::ensure "$UNIT" "$UNIT_FILE" "$CONFIG" "$PROGRAMS/.sha256"
  unit::wait_http "$UNIT" http://127.0.0.1:9090/-/ready
  "$SLIPWAY_BUNDLE/headnode/allow-imds.sh" --check prometheus ||
    log::die "prometheus has no access to the metadata service: without credentials nothing is written to AMP" \
      "run 'sudo systemctl restart slipway-prometheus', and see 'sudo iptables --list PARALLELCLUSTER_IMDS'"
}

prometheus::main
