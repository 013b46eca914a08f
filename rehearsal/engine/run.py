"""One rehearsal from beginning to end: embedded AWS, `cdk deploy`, local hosts, acceptance, verdict."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError
from rich.console import Console

from rehearsal.cloud.seed import DEPLOYER, make_bucket
from rehearsal.cloud.server import Address, EmbeddedAws
from rehearsal.cloud_model import STACK_TYPE, CloudEvent
from rehearsal.engine import cdk
from rehearsal.engine.account import seed_of
from rehearsal.engine.cpu import available_cpus, keeps_its_name, starvation, timed_out
from rehearsal.engine.instances import Instances
from rehearsal.engine.lifeline import Interrupted, code_of_screen, leave_screen
from rehearsal.engine.local_cluster import AWS_PORT, MIRROR_BUCKET, LocalCluster
from rehearsal.engine.memory import MemoryWatch
from rehearsal.engine.outcome import (
    Outcome,
    fetch_results,
    left_out,
    print_permissions,
    print_result,
    print_times,
    read_report,
)
from rehearsal.engine.parallelcluster import ClusterProvider
from rehearsal.engine.progress import Progress
from rehearsal.engine.specification import TOOLS, Specification
from rehearsal.hosts import cgroups
from rehearsal.hosts.image import CLUSTER_USER
from rehearsal.permissions import report as permissions
from slipway.breakage import Breakage
from slipway.kept import HOSTS_FILE, local_time, login_command
from slipway.settings import Settings
from slipway.stack_names import STACKS
from slipway.work_folder import OUTPUT_FILE, SHELL_FILE

GATEWAY_NAME = "aws.rehearsal"  # the engine's name in the hosts' /etc/hosts
POLL_INTERVAL_S = 3.0  # of the acceptance resource; on AWS the stack says 30 s. Each question starts a process here
SETTLE_S = 3.0
"""The CDK CLI asks every 5 s; a stack that is made within this time is answered as complete at once."""
SYNTHESIS = re.compile(r"Synthesis time: ([0-9.]+)s")
WITHOUT_RESOURCES = re.compile(r"^(\S+): stack has no resources")  # said by the CDK CLI, which then makes no stack
FAILED = re.compile(r"FAILED|ROLLBACK")
NESTED_SUFFIX = re.compile(r"-[0-9A-F]{12}$")  # what CloudFormation appends to the name of a nested stack
SHELL_POLL_S = 0.2
KEPT_POLL_S = 0.5
MIRROR_POLICY = {  # the rehearsal's own mirror, which no policy of the nodes names
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": "*",
            "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{MIRROR_BUCKET}/*",
        }
    ]
}
Breakages = tuple[Breakage, ...]


class Engine:
    """One rehearsal of one settings file."""

    def __init__(self, spec: Specification, settings: Settings, breakages: Breakages, console: Console) -> None:
        self.spec = spec
        self.settings = settings
        self.console = console
        self.progress = Progress(console, spec.began)
        self.memory = MemoryWatch(spec.work / "hosts")
        stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"
        folder = spec.output / f"{settings.name}-{stamp}"
        folder.mkdir(parents=True)
        (spec.work / OUTPUT_FILE).write_text(str(folder), encoding="utf-8")
        self.outcome = Outcome(folder)
        self.kept_until = 0.0
        # All addresses: in the namespace of the local hosts there is no other network.
        everywhere = Address("0.0.0.0", AWS_PORT, GATEWAY_NAME)  # noqa: S104
        address = Address(port=spec.port) if spec.cloud_only else everywhere
        self.aws = EmbeddedAws(
            settings.region,
            folder / "aws",
            address=address,
            listener=self._on_event,
            query_interval_s=POLL_INTERVAL_S,
            settle_s=SETTLE_S,
        )
        instances = Instances(self.aws, settings.name)
        self.aws.credentials_at = instances.credentials_at
        self.hosts = LocalCluster(
            instances, self.progress, spec, folder / "hosts", judged=settings.judged_nodes, breakages=breakages
        )
        self.provider = ClusterProvider(self.aws, self.progress, spec, self.hosts)

    def run(self) -> int:
        """Rehearse. Whatever happens, hosts and servers are ended and the result is printed last."""
        try:
            with self.progress.shown():
                self._go()
            if self.spec.keep_hours and self._has_head("not kept"):
                self._keep()
        except Interrupted:
            self.outcome.interrupted = True
            self.progress.silence()  # what fails from now on fails because the hosts are ended
        finally:
            self._end()
        if not self.kept_until:
            self._report()
        return self.outcome.exit_code

    def _go(self) -> None:
        for line in self._left_out():
            self.progress.say(line, "yellow")
        with self.progress.phase("embedded AWS starts"):
            self._prepare_machine()
            self._start_aws()
        cdk_out = self.spec.work / "cdk.out"
        stacks = self._stacks()
        try:
            with self.progress.phase("cdk deploy"):
                cdk.deploy(
                    self.spec.settings,
                    stacks,
                    cdk_out,
                    self.outcome.folder / "cdk.log",
                    self.aws.env(self.aws.authority.session(DEPLOYER, "rehearsal")),
                    self._on_cdk_line,
                )
        except cdk.DeployFailed as error:
            if not self.outcome.faults:
                self.outcome.faults.append(f"{error}; its log: {self.outcome.folder / 'cdk.log'}")
        else:
            with self.progress.phase("every resource looked up"):
                self.outcome.faults += self.aws.verify(cdk_out, stacks)
        self._look_for_starvation()
        if self.spec.shell:
            self._offer_shell()
        self._collect()

    def _look_for_starvation(self) -> None:
        """Where time decided, ask whether this machine is too slow."""
        by_time = self.hosts.acceptance_output or timed_out(self.outcome.faults)
        if self.outcome.faults and by_time and not self.spec.cloud_only:
            starved = starvation(available_cpus())
            user_scenario = self.settings.scenario_file is not None
            if starved and keeps_its_name(self.outcome.faults, bool(self.spec.breaks), user_scenario):
                self.progress.say(starved, "yellow")
            else:
                self.outcome.starvation = starved

    def _left_out(self) -> list[str]:
        if self.spec.cloud_only:
            return []
        return left_out(self.settings.queues, self.spec.max_hosts, self.settings.acceptance.scenario)

    def _offer_shell(self) -> None:
        """Let `slipway rehearse` open a shell on the head node, and wait for its end."""
        if not self._has_head("no shell"):
            return
        offer = self.spec.work / SHELL_FILE
        self.progress.say("a shell on the head node: sinfo, sbatch, squeue ...; `exit` ends the rehearsal")
        with self.progress.paused():
            _write(offer, [*self.hosts.running()[0].entrance(), *login_command(CLUSTER_USER)])
            while offer.exists():
                time.sleep(SHELL_POLL_S)

    def _has_head(self, without: str) -> bool:
        """Whether the head node runs; if it does not, say what there is `without` it."""
        if self.hosts.running():
            return True
        self.progress.say(f"{without}: the failed deployment has ended the head node", "yellow")
        return False

    def _keep(self) -> None:
        """Print the result, then leave the cluster running until this process is asked to end."""
        self.kept_until = time.time() + self.spec.keep_hours * 3600
        self._report()
        code = code_of_screen(self.outcome.exit_code)
        leave_screen()
        written: list[Any] = []
        while True:
            hosts = self.hosts.running()
            if hosts != written:
                enter = {host.name: host.entrance() for host in hosts}
                facts = {"until": self.kept_until, "exit_code": code, "user": CLUSTER_USER}
                _write(self.spec.work / HOSTS_FILE, {**facts, "head": hosts[0].name, "enter": enter})
                written = hosts
            time.sleep(KEPT_POLL_S)

    def _print_kept(self) -> None:
        lines = (
            f"{self.settings.name} is kept until {local_time(self.kept_until)}. It ends then, or by: "
            f"slipway rehearse --end {self.settings.name}",
            "A shell as its user: slipway shell [NODE] [-- COMMAND...]",
        )
        for line in lines:
            self.console.print(line, markup=False, soft_wrap=True)

    def _prepare_machine(self) -> None:
        """In namespaces of our own nothing of the machine's network, /run or leftovers of dead rehearsals is met."""
        if self.spec.cloud_only:
            return
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "slipway-run", "/run"], check=True)
        Path("/run/netns").mkdir()
        Path("/run/lock").mkdir()
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        cgroups.sweep()
        self.memory.start()

    def _start_aws(self) -> None:
        self.aws.register_custom_resource("Custom::PclusterCluster", self.provider.handle)
        self.aws.set_ssm_runner(self.hosts.run_command)
        self.aws.start()
        self.aws.seed(seed_of(self.settings, self.spec.original.parent))
        if not self.spec.cloud_only:
            s3 = self.aws.clients("s3")
            make_bucket(self.aws.clients, MIRROR_BUCKET)
            s3.put_bucket_policy(Bucket=MIRROR_BUCKET, Policy=json.dumps(MIRROR_POLICY))
            for file in sorted((TOOLS / "mirror").iterdir()):
                s3.upload_file(str(file), MIRROR_BUCKET, file.name)

    def _stacks(self) -> list[str]:
        """All stacks; without hosts nothing can be measured, so acceptance is left out."""
        parts = [
            part
            for part in STACKS
            if part != "acceptance" or not (self.spec.cloud_only or self.settings.acceptance.scenario == "none")
        ]
        for part in parts:
            self.progress.update("stack", part, "waiting", quiet=True)
        return [f"{self.settings.name}-{part}" for part in parts]

    def _on_event(self, event: CloudEvent) -> None:
        if event.stack == self.settings.name:
            return  # ParallelCluster's stack: the hosts show how far it is
        if event.resource_type == STACK_TYPE and event.logical_id == event.stack:
            state = (
                "failed" if FAILED.search(event.status) else "ok" if event.status.endswith("COMPLETE") else "running"
            )
            self.progress.update("stack", self._short(event.stack), state, event.status)
            return
        if event.status.endswith("_FAILED"):
            self._on_failed_resource(event)
        text = f"{event.logical_id} {event.status}"
        self.progress.update("stack", self._short(event.stack), "running", text, quiet=True)

    def _short(self, stack: str) -> str:
        """A stack's name without the cluster's, which all have in common."""
        return NESTED_SUFFIX.sub("", stack.removeprefix(f"{self.settings.name}-"))

    def _on_failed_resource(self, event: CloudEvent) -> None:
        if "cancelled" in event.reason.lower() or self.outcome.interrupted:
            return
        self.outcome.faults.append(f"{event.stack}/{event.logical_id}: {_verdict_in(event.reason)}")

    def _on_cdk_line(self, line: str) -> None:
        match = SYNTHESIS.search(line)
        if match:
            self.progress.took("synthesis", float(match[1]), depth=1)
        match = WITHOUT_RESOURCES.match(line)
        if match:
            self.progress.update("stack", self._short(match[1]), "ok", "nothing to make: all of it exists already")

    def _collect(self) -> None:
        """Fetch the report and the hosts' logs, also of a failed deployment."""
        bucket = self._results_bucket()
        if bucket:
            self.outcome.report_folder = fetch_results(self.aws, bucket, self.outcome.folder / "acceptance")
            self.outcome.report = read_report(self.outcome.report_folder)
        self.hosts.collect_logs()
        self._judge_permissions()
        # Nodes that failed are first: other failures of such a cluster followed from them.
        self.outcome.faults[:0] = self.hosts.daemon.failures if self.hosts.daemon else []
        self.outcome.name_local_results()

    def _judge_permissions(self) -> None:
        """A request that IAM refused is a fault, also where its sender went on without the answer."""
        record = self.outcome.permissions = permissions.as_json(self.aws.authority)
        permissions.write(record, self.outcome.folder / "permissions.txt")
        self.outcome.faults += record["denied"]

    def _results_bucket(self) -> str | None:
        """The bucket that the storage stack made or was given; None when that stack was not created."""
        try:
            stack = self.aws.clients("cloudformation").describe_stacks(StackName=f"{self.settings.name}-storage")[
                "Stacks"
            ][0]
        except ClientError:
            return None
        return next(
            (str(output["OutputValue"]) for output in stack.get("Outputs", []) if output["OutputKey"] == "BucketName"),
            None,
        )

    def _end(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the result is printed in any case
        (self.spec.work / HOSTS_FILE).unlink(missing_ok=True)  # what a shell runs ends with the hosts
        with self.progress.phase("everything is ended"):
            self.memory.stop()
            self.hosts.stop()
            self.aws.stop()

    def _report(self) -> None:
        if self.hosts.acceptance_output:
            self.console.print(_tables_of(self.hosts.acceptance_output), markup=False, soft_wrap=True)
        print_times(self.console, self.progress.phases, self.progress.elapsed_s, self.memory.peak_mb or None)
        if self.spec.cloud_only and not self.outcome.faults:
            self.console.print("Without local hosts nothing was measured: everything up to Slurm is rehearsed.")
        for line in self._left_out():
            self.console.print(line, style="yellow", markup=False, soft_wrap=True)
        print_permissions(self.console, self.outcome)
        if self.kept_until:
            self._print_kept()
        if self.spec.as_json:
            print(json.dumps(self._as_json()), flush=True)
        print_result(self.console, self.outcome)

    def _as_json(self) -> dict[str, object]:
        return {
            "settings": str(self.spec.original),
            "accepted": not self.outcome.faults and not self.outcome.interrupted,
            "faults": self.outcome.faults,
            "starvation": self.outcome.starvation or None,
            "left_out": self._left_out(),
            "permissions": self.outcome.permissions,
            "report": self.outcome.report,
            "folder": str(self.outcome.folder),
            "seconds": {phase.name: round(phase.seconds, 1) for phase in self.progress.phases},
            "peak_memory_mb": self.memory.peak_mb or None,
            "kept_until": self.kept_until or None,
        }


def _write(file: Path, data: Any) -> None:
    """Write JSON in one step: another process waits for the file."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(data), encoding="utf-8")
    part.rename(file)


def _tables_of(output: str) -> str:
    """What acceptance printed, without its progress and without places that are gone with the hosts."""
    dropped = (r" +[0-9.]+ s  ", r"report: /", r"uploaded: ", r" +log: /", r" +again: ", r"\[RESULT\] ")
    kept = [line for line in output.splitlines() if not re.match("|".join(dropped), line)]
    return "\n".join(kept).strip("\n")


def _verdict_in(reason: str) -> str:
    """The acceptance's own words without their prefix; every other reason as it is."""
    match = re.search(r"\[RESULT\] FAILURE: (.*)", reason, re.DOTALL)
    return (match[1] if match else reason).strip()
