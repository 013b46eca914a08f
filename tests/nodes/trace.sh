# shellcheck shell=bash
# trace.sh: BASH_ENV of every bash that the tests of the node scripts start, on this machine and in their hosts.
#
# Writes file and line of each command to the file `trace` next to it, for coverage_bash.py. The traces hold expanded
# commands, and so made-up keys of the tests: they live in the tests' own temporary folder and go with it.
if [ -w "${BASH_ENV%/*}/trace" ]; then
  exec {BASH_XTRACEFD}>>"${BASH_ENV%/*}/trace"
  PS4='+@@${BASH_SOURCE[0]-}@$LINENO@ '
  set -x
fi
