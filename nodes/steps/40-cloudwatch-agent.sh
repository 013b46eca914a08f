#!/bin/bash
# Writes the CloudWatch agent's configuration for metrics and logs, and loads it where the agent is installed.
# needs: python3; the agent is optional
# runs on: headnode compute
# permission: root
# how often: once a node; safe to run again: the agent loads the file only when it changed
# on failure: report
# timeout: 120 s
# takes: about 0.1 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib/all.sh"

# ParallelCluster runs the agent with its own configuration: ours is appended and never replaces it. The agent knows one
# metrics namespace only, and ParallelCluster's alarms of the head node read its default one. Where ParallelCluster
# collects metrics, ours is therefore loaded with the logs alone.

readonly CLOUDWATCH_HOME=/opt/aws/amazon-cloudwatch-agent
readonly CLOUDWATCH_CTL=$CLOUDWATCH_HOME/bin/amazon-cloudwatch-agent-ctl
# The agent keeps configurations by the last part of their path. ParallelCluster's is amazon-cloudwatch-agent.json; a
# file of the same name would replace it (aws/amazon-cloudwatch-agent, cmd/config-downloader/downloader.go).
readonly CLOUDWATCH_CONFIG=/etc/slipway/slipway.json
readonly CLOUDWATCH_LOADED=$SLIPWAY_STATE_DIR/cloudwatch-agent.loaded
# ParallelCluster's configuration, by version (aws-parallelcluster-cookbook, write_cloudwatch_agent_json.py).
readonly PCLUSTER_CLOUDWATCH_CONFIGS=(
  /etc/parallelcluster/amazon-cloudwatch-agent/amazon-cloudwatch-agent.json
  "$CLOUDWATCH_HOME/etc/amazon-cloudwatch-agent.json"
  "$CLOUDWATCH_HOME/etc/amazon-cloudwatch-agent.d/file_amazon-cloudwatch-agent.json"
)
readonly CLOUDWATCH_TIMEOUT_S=60

cloudwatch::main() {
  local fsx metrics=yes
  env::load "$SLIPWAY_NODE_ENV"
  fsx=$(env::get_path FSX_MOUNT /fsx)
  if grep --quiet --no-messages '"metrics_collected"' "${PCLUSTER_CLOUDWATCH_CONFIGS[@]}"; then
    metrics=no
    log::info "ParallelCluster's agent configuration collects metrics of this node itself: ours adds the logs only"
  fi
  file::render amazon-cloudwatch-agent.json.j2 "$CLOUDWATCH_CONFIG" 0644 "FSX_MOUNT=$fsx" "WITH_METRICS=$metrics"
  if [ ! -x "$CLOUDWATCH_CTL" ]; then
    log::info "no CloudWatch agent on this node: $CLOUDWATCH_CONFIG is ready for it"
    return 0
  fi
  cloudwatch::load
}

# Loading restarts the agent: only when the file differs from the one that was loaded.
cloudwatch::load() {
  if cmp --silent "$CLOUDWATCH_CONFIG" "$CLOUDWATCH_LOADED"; then
    return 0
  fi
  timeout --kill-after=5 "$CLOUDWATCH_TIMEOUT_S" \
    "$CLOUDWATCH_CTL" -a append-config -m ec2 -s -c "file:$CLOUDWATCH_CONFIG" ||
    log::die "the CloudWatch agent refuses $CLOUDWATCH_CONFIG" "see $CLOUDWATCH_HOME/logs/configuration-validation.log"
  file::put "$CLOUDWATCH_CONFIG" "$CLOUDWATCH_LOADED" 0644
}

cloudwatch::main
