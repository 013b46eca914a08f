#!/bin/bash
# Runs the tests of this scenario one after another on this machine, as `acceptance run --resume FOLDER` does.
# needs: plan.tsv next to this file (number, test, iteration, step, script, time limit in seconds or 0, and 1 if a
# failure ends the scenario), timeout
# on failure: exit 1 after the last test; `acceptance generate-report --result-dir FOLDER` makes the report
set -uo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" || exit 2
code=0
while IFS=$'\t' read -r _ _ _ _ script limit last <&3; do
  folder=$(dirname "$script")
  echo "$folder begins"
  timeout --kill-after=10 "$limit" bash "$script" >"$folder/stdout.txt" 2>"$folder/stderr.txt" </dev/null && continue
  code=1
  echo "$folder failed: see $folder/stderr.txt" >&2
  ((last == 0)) || break
done 3<plan.tsv
exit "$code"
