"""`make bench-scenario`: verify-configs on 1,000 test files, and the plan of a scenario of 500 tests.

Each is compared with `tomllib` alone, which reads the same files and checks nothing.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

from acceptance.cloudai.load import System, load_tree
from acceptance.cloudai.plan import make_plan
from acceptance.scenario.runs import TestScenario

TESTS, RUNS, RUNS_OF_EACH = 1000, 500, 3
LIMIT_VERIFY_S, LIMIT_PLAN_S = 2.0, 1.0
SYSTEM = """\
name = "bench"
scheduler = "slurm"
install_path = "/fsx/install"
output_path = "/fsx/results"
default_partition = "train"
gpus_per_node = 8
ntasks_per_node = 8
[[partitions]]
name = "train"
"""
TEST = """\
name = "test-{number}"
description = "one of many"
test_template_name = "NcclTest"

[cmd_args]
docker_image_url = "nvcr.io#nvidia/pytorch:25.06-py3"
subtest_name = "all_reduce_perf_mpi"
minbytes = "8M"
maxbytes = "16G"
iters = {number}

[extra_cmd_args]
"--stepfactor" = "2"

[extra_env_vars]
NCCL_ALGO = "Ring"
"""
RUN = """
[[Tests]]
id = "run-{number}"
test_name = "test-{number}"
num_nodes = 4
time_limit = "00:20:00"
"""
NEEDS = """\
[[Tests.dependencies]]
type = "start_post_comp"
id = "run-{before}"
"""


def write_tree(folder: Path) -> None:
    """Write a system, the tests, and a scenario in which each test follows the one before it."""
    (folder / "test").mkdir()
    (folder / "system.toml").write_text(SYSTEM, encoding="utf-8")
    for number in range(TESTS):
        (folder / f"test/{number}.toml").write_text(TEST.format(number=number), encoding="utf-8")
    text = 'name = "many"\n'
    for number in range(RUNS):
        text += RUN.format(number=number) + (NEEDS.format(before=number - 1) if number else "")
    (folder / "scenario.toml").write_text(text, encoding="utf-8")


def seconds(work: Callable[[], object]) -> float:
    """The least wall time of three tries."""
    times = []
    for _ in range(RUNS_OF_EACH):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def plain(folder: Path) -> None:
    """Read every file with tomllib."""
    for path in folder.rglob("*.toml"):
        tomllib.loads(path.read_text(encoding="utf-8"))


def verify(folder: Path) -> None:
    """Run the command as its users do."""
    subprocess.run([sys.executable, "-m", "acceptance", "verify-configs", folder], check=True, capture_output=True)


def main() -> int:
    """Print the figures and the summary; 1 when a limit was not kept."""
    with tempfile.TemporaryDirectory(prefix="bench-scenario-") as name:
        folder = Path(name)
        write_tree(folder)
        plain_s, verify_s = seconds(lambda: plain(folder)), seconds(lambda: verify(folder))
        tree = load_tree([folder])
        scenario: TestScenario = tree.scenarios[0][1]
        system: System = tree.systems[0]
        plan_s = seconds(lambda: make_plan(scenario, system, folder / "out", "now"))
        jobs = len(make_plan(scenario, system, folder / "out", "now").jobs)
    print(f"verify-configs, {TESTS} tests: {verify_s:.2f} s with the start of Python (limit {LIMIT_VERIFY_S:g} s)")
    print(f"tomllib alone, the same files: {plain_s:.2f} s")
    print(f"plan of {jobs} jobs: {plan_s:.2f} s (limit {LIMIT_PLAN_S:g} s)")
    print(f"{verify_s / plain_s:.1f}x the time of tomllib, verify {verify_s:.2f} s, plan {plan_s:.2f} s")
    return 0 if verify_s <= LIMIT_VERIFY_S and plan_s <= LIMIT_PLAN_S and jobs == RUNS else 1


if __name__ == "__main__":
    sys.exit(main())
