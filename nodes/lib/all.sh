# shellcheck shell=bash
# all.sh: the functions that the node scripts share, one idea a file. It is sourced, never run, and changes nothing on
# the node by being sourced. The files that it sources are not sourced alone.
if declare -F log::die >/dev/null; then return 0; fi # sourced already
set -euo pipefail
umask 022
export PATH="/usr/local/sbin:/usr/local/bin:/opt/slurm/bin:${PATH:-/usr/sbin:/usr/bin:/sbin:/bin}"
export HOME="${HOME:-/root}"
# ParallelCluster's Slurm finds its own configuration; other builds of the same commands need the variable.
if [ -z "${SLURM_CONF:-}" ] && [ -f /opt/slurm/etc/slurm.conf ]; then
  export SLURM_CONF=/opt/slurm/etc/slurm.conf
fi

SLIPWAY_BUNDLE=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)
readonly SLIPWAY_BUNDLE
readonly SLIPWAY_NODE_ENV=${SLIPWAY_NODE_ENV:-/etc/slipway/node.env}
# shellcheck disable=SC2034  # the files below and the scripts read them
readonly SLIPWAY_LOG_DIR=/var/log/slipway SLIPWAY_STATE_DIR=/var/lib/slipway

for SLIPWAY_MODULE in log env file retry fetch software unit background steps; do
  # shellcheck source=/dev/null  # each is checked alone
  source "$SLIPWAY_BUNDLE/nodes/lib/$SLIPWAY_MODULE.sh"
done
unset SLIPWAY_MODULE
