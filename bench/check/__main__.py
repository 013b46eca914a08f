"""`make bench-check`: 49 faults, found or not; and how long finding takes.

Slipway runs as its users run it: `slipway check FILE`, and `slipway preflight FILE` against the embedded AWS when the
file itself is good. A fault counts as found only by the rule or question that is there for it. ParallelCluster's
`create-cluster --dryrun` judges the same fault in its own configuration, against the same account.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.check import account, base, find, speed
from bench.check.known import KNOWN
from bench.check.unknown import UNKNOWN
from tests.aws.preflight_aws import PreflightAws

LIMIT_S = 0.35  # wall time of `slipway check` on a file of 16 queues
LIMIT_RATIO = 8.0  # beside pcluster's dry run of the same cluster
LIMIT_PREFLIGHT = 1.5  # beside its slowest single call


def main() -> int:
    """Print the tables and the summary; 1 when a fault was missed or a limit was not kept."""
    with tempfile.TemporaryDirectory(prefix="bench-check-") as folder:
        work = Path(folder)
        with PreflightAws(account.REGION, work / "aws") as aws:
            bench = find.Bench(aws, work)
            bench.check_control()
            found = [bench.try_case(case) for case in (*KNOWN, *UNKNOWN)]
            check_s, pcluster_s = speed.check_beside_pcluster(bench)
            preflight_s, slowest_s = speed.preflight_beside_slowest_call(bench)
    number, ratio, factor = sum(found), pcluster_s / check_s, preflight_s / slowest_s
    print(f"preflight {preflight_s:.2f} s, its slowest call {slowest_s:.2f} s: {factor:.2f} x")
    print(f"found {number}/{len(found)}, {ratio:.1f}x faster, {check_s:.2f} s")
    good = number == len(found) and check_s <= LIMIT_S and ratio >= LIMIT_RATIO and factor <= LIMIT_PREFLIGHT
    return 0 if good else 1


if __name__ == "__main__":
    base.require_environments()
    sys.exit(main())
