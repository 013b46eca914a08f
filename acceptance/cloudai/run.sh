#!/bin/bash
# Runs the tests of this scenario one after another on this machine, as `acceptance run --resume FOLDER` does.
# needs: plan.tsv next to this file (number, test, iteration, step, script, time limit in seconds or 0, and 1 if a
# failure ends the scenario), timeout
# on failure: exit 1 after the last test, 130 after Ctrl-C or SIGTERM, which end the test that runs; `acceptance
# generate-report --result-dir FOLDER` makes the report
set -uo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" || exit 2
code=0
child=

# shellcheck disable=SC2329 # the trap calls it
stop() { # Ctrl-C does not reach the test: timeout gives it another process group
  [[ -z $child ]] || kill -TERM "$child" 2>/dev/null
  wait
  exit 130
}
trap stop INT TERM HUP

while IFS=$'\t' read -r _ _ _ _ script limit last <&3; do
  folder=$(dirname "$script")
  echo "$folder begins"
  rm -f "$folder/notes.txt" # of an earlier start
  timeout --kill-after=10 "$limit" bash "$script" >"$folder/stdout.txt" 2>"$folder/stderr.txt" </dev/null 3<&- &
  child=$!
  wait "$child" && continue
  code=1
  echo "$folder failed: see $folder/stderr.txt" >&2
  ((last == 0)) || break
done 3<plan.tsv
exit "$code"
