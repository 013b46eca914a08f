# shellcheck shell=bash
# cloudwatch-agent.sh: what the CloudWatch agent collects for us. Sourced by the steps, after common.sh.
#
# ParallelCluster runs the agent with a configuration of its own: ours is appended, never put in its place. The agent
# knows one metrics namespace only, and ParallelCluster's alarms of the head node read its default one; where
# ParallelCluster collects metrics itself, ours is therefore loaded with the logs alone.

readonly CLOUDWATCH_CTL=/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl
readonly CLOUDWATCH_CONFIG=/etc/slipway/amazon-cloudwatch-agent.json
readonly CLOUDWATCH_LOADED=$SLIPWAY_STATE_DIR/cloudwatch-agent.loaded
readonly PCLUSTER_CLOUDWATCH_CONFIG=/etc/parallelcluster/amazon-cloudwatch-agent/amazon-cloudwatch-agent.json
readonly CLOUDWATCH_TIMEOUT_S=60

cloudwatch::main() { # NODE_KIND: headnode | compute
  local metrics=yes
  env::load "$SLIPWAY_NODE_ENV"
  if grep --quiet --no-messages '"metrics_collected"' "$PCLUSTER_CLOUDWATCH_CONFIG"; then
    metrics=no
    log::info "ParallelCluster's agent configuration collects metrics of this node itself: ours adds the logs only"
  fi
  file::render amazon-cloudwatch-agent.json.j2 "$CLOUDWATCH_CONFIG" 0644 "NODE_KIND=$1" "WITH_METRICS=$metrics"
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
  timeout --kill-after=5 "$CLOUDWATCH_TIMEOUT_S" "$CLOUDWATCH_CTL" -a append-config -m ec2 -s -c "file:$CLOUDWATCH_CONFIG" ||
    log::die "the CloudWatch agent refuses $CLOUDWATCH_CONFIG" "see /opt/aws/amazon-cloudwatch-agent/logs/configuration-validation.log"
  file::put "$CLOUDWATCH_CONFIG" "$CLOUDWATCH_LOADED" 0644
}
