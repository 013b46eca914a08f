"""A rehearsal in which jobs start nodes: `python inside_dynamic.py SPECIFICATION ANSWER`, in namespaces as `slipway rehearse` makes.

Writes what it saw as one JSON object to the file ANSWER and ends with the rehearsal's exit code.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from rehearsal.engine.run import Engine
from rehearsal.engine.specification import Specification
from slipway.breakage import parse_breakage
from slipway.settings import load_settings

# So that commands need not name the queue; the other one, the first, is for what goes wrong.
QUEUE = "export SLURM_PARTITION=train SBATCH_PARTITION=train SALLOC_PARTITION=train"
# The guide's commands, as it writes them.
INSTALL = "sudo bash /fsx/nccl/install-nccl-shared.sh v2.28.7-1 v1.17.2-aws /fsx"
INSTALL_OTHER = "sudo bash /fsx/nccl/install-nccl-shared.sh v2.27.7-1 v1.17.2-aws /fsx"
APPLY = "bash /fsx/nccl/apply-nccl-to-running-nodes.sh"
SHOW_VERSION = "bash -c 'source /etc/profile.d/nccl-shared.sh && echo $NCCL_VERSION'"
TARGETS_API = "http://localhost:9090/api/v1/targets?state=active"
PATIENCE_S = 120.0
# Twice what users are promised, which tests/nodes/test_targets.py adds up: this machine may be slow.
TARGET_UP_S, TARGET_GONE_S = 60.0, 120.0
FIRST, SECOND, SPARE = "train-dy-gpu-1", "train-dy-gpu-2", "spare-dy-gpu-1"


class Workflows(Engine):
    """After the deployment and before the end: the workflows of users, as the cluster's default user on the head node."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.saw: dict[str, Any] = {}

    def _collect(self) -> None:
        assert self.hosts.fleet is not None, self.outcome.faults
        self.fleet = self.hosts.fleet
        try:
            for part in (self.alternative, self.nodes_go, self.recommended, self.bad_days):
                part()
        finally:
            super()._collect()

    # ---- the parts ----

    def alternative(self) -> None:
        """Nodes run, NCCL is installed then, and applied to them."""
        self.see("at first", "sinfo --noheader --Node --format='%N %T'")
        self.see("hold", "salloc --quiet --no-shell --nodes=1")
        # Named: while the job before it completes there, Slurm starts a second node for a job that any node would do.
        on_it = f"srun --quiet --nodelist={FIRST}"
        self.see("before", f"{on_it} ls /etc/profile.d/nccl-shared.sh")
        self.saw["instances"] = self.instances()
        self.saw["targets up after"] = self.within(
            TARGET_UP_S, lambda: self.targets(FIRST) == {"9100": "up", "9400": "up"}
        )
        self.see("install", INSTALL)
        self.see("apply", APPLY)
        self.see("after apply", f"{on_it} {SHOW_VERSION}")

    def nodes_go(self) -> None:
        """The allocation ends, the node is idle, and goes."""
        self.see("release", "scancel --user=ubuntu")
        self.wait(lambda: not self.fleet.computes)
        self.saw["targets gone after"] = self.within(TARGET_GONE_S, lambda: not self.targets(FIRST))
        self.saw["instances when idle"] = self.instances()
        self.saw["left of the node"] = self.left_of(FIRST)
        self.wait(lambda: self.states()[FIRST].endswith("~"))

    def recommended(self) -> None:
        """No node runs, NCCL is installed, a job starts nodes; on the way up its job is cancelled and Slurm starts anew."""
        self.see("install other", INSTALL_OTHER)
        self.see("submit", "sbatch --parsable --nodes=2 --output=/fsx/never --wrap hostname")
        self.wait(lambda: len(self.fleet.computes) == 2)
        self.see("cancel", "scancel --user=ubuntu; squeue --noheader --states=pending,configuring,running")
        self.saw["on the way up"] = self.states()
        self.see("restart", "sudo systemctl restart slurmctld")
        self.wait(lambda: self.user("scontrol ping")[0] == 0)
        hold = "salloc --quiet --no-shell --nodelist"
        # At once: the first node to come up would be idle, and go, while only the other one is asked for.
        self.see("hold both", f"{hold}={FIRST} & {hold}={SECOND} && wait $!")
        self.see("two nodes", f"srun --quiet --nodes=2 {SHOW_VERSION}")

    def bad_days(self) -> None:
        """No capacity for a third node, a host that dies, a set-up that fails; the first node runs to the very end."""
        self.see(
            "no capacity",
            "timeout 20 srun --partition=spare hostname; sinfo --noheader --nodes=spare-dy-gpu-1 --format=%E",
        )
        self.fleet.kill(SECOND)
        self.wait(lambda: len(self.fleet.computes) < 2)
        self.wait(self.second_goes)
        self.wait(lambda: self.states()[SPARE].endswith("~"))
        self.see("failed set-up", "timeout 110 srun --partition=spare hostname")
        self.wait(lambda: not self.fleet.hosts.get(SPARE))
        self.saw["failures"] = self.hosts.daemon.failures if self.hosts.daemon else None
        self.saw["instances at the end"] = self.instances()
        self.saw["group"] = self.fleet.group

    def second_goes(self) -> bool:
        """Whether the second node is powered down or on its way there; the reason is of the same moment."""
        code, text = self.user(f"sinfo --noheader --nodes={SECOND} --format='%T %E'")
        state, _, reason = text.partition(" ")
        self.saw["reason"] = (code, reason)
        return state.endswith(("%", "~"))

    # ---- what they are made of ----

    def user(self, command: str) -> tuple[int, str]:
        """Run a command as a user types it on the head node: exit code and all that it printed."""
        done = self.fleet.head.exec(
            ["su", "-", "ubuntu", "-c", f"{QUEUE}; {{ {command}; }} 2>&1"], timeout_s=PATIENCE_S
        )
        return done.rc, done.stdout.strip()

    def see(self, name: str, command: str) -> None:
        """Run it and keep what came of it."""
        self.saw[name] = self.user(command)
        self.progress.say(f"{name}: {self.saw[name]}")

    def wait(self, is_so: Callable[[], object]) -> None:
        """Until it is so; a wait without end is a failure of the test."""
        assert self.within(PATIENCE_S, is_so) is not None, self.states()

    def within(self, limit_s: float, is_so: Callable[[], object]) -> float | None:
        """Seconds until it was so, or None."""
        begin = time.monotonic()
        while not is_so():
            if time.monotonic() - begin > limit_s:
                return None
            time.sleep(0.3)
        return round(time.monotonic() - begin, 1)

    def states(self) -> dict[str, str]:
        """What Slurm says of each node."""
        lines = self.user("sinfo --noheader --Node --format='%N %T'")[1].splitlines()
        return {line.split()[0]: line.split()[1] for line in lines if len(line.split()) == 2}

    def targets(self, node: str) -> dict[str, str]:
        """Port -> health of a node's targets, as Prometheus on the head node has them."""
        active = json.loads(self.user(f"curl --silent '{TARGETS_API}'")[1])["data"]["activeTargets"]
        mine = (target for target in active if target["labels"].get("node") == node)
        return {target["scrapeUrl"].rpartition(":")[2].partition("/")[0]: target["health"] for target in mine}

    def instances(self) -> dict[str, str]:
        """Name -> state of every emulated instance but the head node's; of one name, the newest."""
        pages = self.aws.clients("ec2").describe_instances()["Reservations"]
        found = [instance for page in pages for instance in page["Instances"]]
        names = [next(tag["Value"] for tag in instance["Tags"] if tag["Key"] == "Name") for instance in found]
        states = {name: instance["State"]["Name"] for name, instance in zip(names, found, strict=True)}
        return {name: state for name, state in states.items() if name != "head"}

    def left_of(self, node: str) -> list[str]:
        """Mounts, files, control groups and network of a node that has gone."""
        roots = [str(path) for path in (self.spec.work / "hosts/roots").glob(f"{node}*")]
        mounts = [line for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines() if node in line]
        groups = [str(path) for path in Path("/sys/fs/cgroup").rglob(f"{self.fleet.group}/{node}*")]
        return [*roots, *mounts, *groups, *(str(path) for path in Path("/run/netns").glob(node))]


def main(specification: str, answer: str) -> int:
    """Run the rehearsal; returns its exit code."""
    spec = Specification.from_json(specification)
    faults = tuple(parse_breakage(text) for text in spec.breaks)
    engine = Workflows(spec, load_settings(spec.settings), faults, Console(highlight=False, width=200))
    try:
        return engine.run()
    finally:
        Path(answer).write_text(json.dumps(engine.saw), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
