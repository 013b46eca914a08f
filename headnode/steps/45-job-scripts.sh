#!/bin/bash
# Adds Slipway's scripts to the directories of Slurm's Prolog and Epilog; ParallelCluster's own stay.
# needs: ParallelCluster's directories below /opt/slurm/etc/scripts
# permission: root
# how often: once a head node; safe to run again
# on failure: report
# timeout: 30 s
# takes: about 0.1 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../nodes/lib/all.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"

# slurm.conf of ParallelCluster 3.6 and newer runs all of prolog.d and epilog.d there, on each node, in reverse
# alphabetical order. A script that fails drains the node, so these two never do.
readonly JOB_SCRIPTS=/opt/slurm/etc/scripts

job_scripts::put() { # DIRECTORY PROGRAM
  file::put - "$JOB_SCRIPTS/$1/50_slipway" 0755 <<SCRIPT
#!/bin/bash
# Written by Slipway: see docs/containers.md. It never fails, and ends after a minute.
program=/opt/slipway/current/compute/$2
[ ! -x "\$program" ] || timeout --kill-after=5 60 "\$program" >>/var/log/slipway/jobs.log 2>&1 </dev/null
exit 0
SCRIPT
}

job_scripts::main() {
  if [ ! -d "$JOB_SCRIPTS/prolog.d" ] || [ ! -d "$JOB_SCRIPTS/epilog.d" ]; then
    log::info "no $JOB_SCRIPTS/prolog.d and epilog.d: leftovers of ended jobs are not removed"
    return 0
  fi
  job_scripts::put prolog.d job-begin.sh
  job_scripts::put epilog.d job-end.sh
}

job_scripts::main
