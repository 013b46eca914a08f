"""`make bench-check`: the faults of the rules' bad files and of preflight's tests, found or not; and the time it takes.

Slipway runs as its users run it. The speed is compared with ParallelCluster's `create-cluster --dryrun` of the same
cluster, against the same account in the embedded AWS.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.check import base, find, speed
from slipway.settings import load_settings
from tests.aws.preflight_aws import PreflightAws

LIMIT_S = 0.35  # wall time of `slipway check` on a file of 16 queues
LIMIT_RATIO = 8.0  # compared with pcluster's dry run of the same cluster
LIMIT_PREFLIGHT = 1.5  # compared with its slowest single call


def main() -> int:
    """Print the tables and the summary; 1 when a fault was missed or a limit was not kept."""
    with tempfile.TemporaryDirectory(prefix="bench-check-") as folder:
        work = Path(folder)
        with PreflightAws(load_settings(base.CONTROL).region, work / "aws") as aws:
            bench = find.Bench(aws, work)
            bench.check_control()
            rules, bad_files = bench.rules_found()
            check_s, pcluster_s = speed.check_and_pcluster(bench)
            preflight_s, slowest_s = speed.preflight_and_slowest_call(bench)
    questions, cases = find.questions_found()
    found, total = rules + questions, bad_files + cases
    ratio, factor = pcluster_s / check_s, preflight_s / slowest_s
    print(f"rules {rules}/{bad_files}, preflight {questions}/{cases}")
    print(f"preflight {preflight_s:.2f} s, its slowest call {slowest_s:.2f} s: {factor:.2f} x")
    print(f"found {found}/{total}, {ratio:.1f}x faster, {check_s:.2f} s")
    good = found == total and check_s <= LIMIT_S and ratio >= LIMIT_RATIO and factor <= LIMIT_PREFLIGHT
    return 0 if good else 1


if __name__ == "__main__":
    base.require_environments()
    sys.exit(main())
