"""One rehearsal from beginning to end: embedded AWS, ``cdk deploy``, local hosts, acceptance, verdict."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from botocore.exceptions import ClientError
from rich.console import Console

from rehearsal.cloud.model import STACK_TYPE, CloudEvent
from rehearsal.cloud.seed import make_bucket
from rehearsal.cloud.server import Address, EmbeddedAws
from rehearsal.engine import cdk
from rehearsal.engine.account import seed_of
from rehearsal.engine.configuration import node_names
from rehearsal.engine.instances import Instances
from rehearsal.engine.local_cluster import AWS_PORT, MIRROR_BUCKET, LocalCluster
from rehearsal.engine.memory import MemoryWatch
from rehearsal.engine.outcome import Outcome, fetch_results, print_result, print_times, read_report
from rehearsal.engine.parallelcluster import ClusterProvider
from rehearsal.engine.progress import Progress
from rehearsal.engine.specification import TOOLS, Specification
from rehearsal.hosts import HostsError, cgroups
from rehearsal.hosts.breakage import Breakage, match_name, parse_breakage
from slipway.errors import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, EXIT_USAGE, SlipwayError
from slipway.settings import Settings, load_settings
from slipway.stack_names import STACKS

GATEWAY_NAME = "aws.rehearsal"  # the engine's name in the hosts' /etc/hosts
POLL_INTERVAL_S = 1.0  # of the acceptance resource; on AWS the stack says 30 s
SETTLE_S = 3.0
"""The CDK CLI asks every 5 s; a stack that is made within this time is answered as complete at once."""
END_FILE = "ended"  # tells `slipway rehearse` that the result was printed
FULL_BYTES = 1_000_000
SYNTHESIS = re.compile(r"Synthesis time: ([0-9.]+)s")
WITHOUT_RESOURCES = re.compile(r"^(\S+): stack has no resources")  # said by the CDK CLI, which then makes no stack
FAILED = re.compile(r"FAILED|ROLLBACK")


class Interrupted(BaseException):
    """The user asked to stop, or the process that started us is gone.

    No Exception: a library that wraps every Exception into its own would make a failure of it.
    """


def main(specification: str) -> int:
    """Run the rehearsal that the JSON text asks for; returns the exit code. No traceback reaches the screen."""
    spec = Specification.from_json(specification)
    console = Console(highlight=False, stderr=spec.as_json)
    logging.raiseExceptions = False  # a log that cannot be written must not fill the screen; the disk is told below
    code = _outcome_of(spec, console)
    (spec.work / END_FILE).write_text(str(code), encoding="ascii")
    return code


def _outcome_of(spec: Specification, console: Console) -> int:
    try:
        settings = load_settings(spec.settings)
        breakages = tuple(parse_breakage(text) for text in spec.breaks)
        _check_targets(breakages, settings, spec.max_hosts)
        with _interruptible():
            return Engine(spec, settings, breakages, console).run()
    except SlipwayError as error:
        return _refuse(console, str(error), error.exit_code)
    except HostsError as error:
        return _refuse(console, str(error), EXIT_USAGE)
    except Interrupted:
        return _refuse(console, "interrupted", EXIT_INTERRUPTED)
    except OSError as error:
        return _refuse(console, _told(error, spec), EXIT_ENVIRONMENT)


def _refuse(console: Console, text: str, code: int) -> int:
    """Say what ended the rehearsal before it came to a result of its own."""
    lines = text.splitlines()
    for line in lines[1:]:
        console.print(line, markup=False, soft_wrap=True)
    with contextlib.suppress(OSError):
        console.print(f"[RESULT] FAILURE: {lines[0]}", markup=False, soft_wrap=True)
    return code


def _told(error: OSError, spec: Specification) -> str:
    """The system's refusal with the place it is about: on a full disk, the folders that we write to."""
    if error.errno != errno.ENOSPC:
        return f"{error.filename or spec.output}: {error.strerror}"
    full = [str(folder) for folder in (spec.output, spec.work) if _is_full(folder)]
    return (
        f"{' and '.join(full) or error.filename or spec.output}: {error.strerror}. Hint: make room, or another --output"
    )


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < FULL_BYTES
    except OSError:
        return False


def _check_targets(breakages: tuple[Breakage, ...], settings: Settings, max_hosts: int) -> None:
    """A fault that names a node must name one of this cluster, before minutes are spent."""
    names = [
        name
        for queue in settings.queues
        for name, _ in node_names(
            queue.name, queue.instance.compute_resource, (queue.min_count, queue.max_count), max_hosts
        )
    ]
    for breakage in breakages:
        if breakage.kind == "slow-node":
            match_name(names, breakage.target)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM, and the end of the process that started us (it holds our standard input), become Interrupted."""

    def stop(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end is under way: a second one must not cut it short
        raise Interrupted

    def watch_lifeline() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    threading.Thread(target=watch_lifeline, daemon=True, name="lifeline").start()
    yield


class Engine:
    """One rehearsal of one settings file."""

    def __init__(
        self, spec: Specification, settings: Settings, breakages: tuple[Breakage, ...], console: Console
    ) -> None:
        self.spec = spec
        self.settings = settings
        self.console = console
        self.progress = Progress(console, spec.began)
        self.memory = MemoryWatch(spec.work / "hosts")
        stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"
        folder = spec.output / f"{settings.name}-{stamp}"
        folder.mkdir(parents=True)
        self.outcome = Outcome(folder)
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
        self.hosts = LocalCluster(
            instances, self.progress, spec, folder / "hosts", judged=settings.judged_nodes, breakages=breakages
        )
        self.provider = ClusterProvider(self.aws, self.progress, spec, self.hosts)

    def run(self) -> int:
        """The road. Whatever happens, hosts and servers are ended and the result is printed last."""
        try:
            with self.progress.shown():
                self._go()
        except Interrupted:
            self.outcome.interrupted = True
        finally:
            self._end()
        self._tell()
        return self.outcome.exit_code

    def _go(self) -> None:
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
                    self.aws.env(),
                    self._on_cdk_line,
                )
        except cdk.DeployFailed as error:
            if not self.outcome.faults:
                self.outcome.faults.append(f"{error}; its last line: {error.tail[-1] if error.tail else '(none)'}")
        else:
            with self.progress.phase("every resource looked up"):
                self.outcome.faults += self.aws.verify(cdk_out, stacks)
        self._collect()

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
            self.progress.update("stack", f"{self.settings.name}-{part}", "waiting", quiet=True)
        return [f"{self.settings.name}-{part}" for part in parts]

    def _on_event(self, event: CloudEvent) -> None:
        if event.resource_type == STACK_TYPE and event.logical_id == event.stack:
            state = (
                "failed" if FAILED.search(event.status) else "ok" if event.status.endswith("COMPLETE") else "running"
            )
            self.progress.update("stack", event.stack, state, event.status)
            return
        if event.status.endswith("_FAILED"):
            self._on_failed_resource(event)
        self.progress.update("stack", event.stack, "running", f"{event.logical_id} {event.status}", quiet=True)

    def _on_failed_resource(self, event: CloudEvent) -> None:
        if "cancelled" in event.reason.lower():
            return
        self.outcome.faults.append(f"{event.stack}/{event.logical_id}: {_verdict_in(event.reason)}")

    def _on_cdk_line(self, line: str) -> None:
        match = SYNTHESIS.search(line)
        if match:
            self.progress.took("synthesis", float(match[1]), depth=1)
        match = WITHOUT_RESOURCES.match(line)
        if match:
            self.progress.update("stack", match[1], "ok", "nothing to make: all of it exists already")

    def _collect(self) -> None:
        """The report and the hosts' logs, also of a failed deployment."""
        bucket = self._results_bucket()
        if bucket:
            self.outcome.report_folder = fetch_results(self.aws, bucket, self.outcome.folder / "acceptance")
            self.outcome.report = read_report(self.outcome.report_folder)
        self.hosts.collect_logs()
        # First: what else went wrong with such a cluster followed from it.
        self.outcome.faults[:0] = self.hosts.dynamic.failures if self.hosts.dynamic else []

    def _results_bucket(self) -> str | None:
        """The bucket that the storage stack made or was given; None when that stack did not come to stand."""
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
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what is known by now is told, whoever asks for the end
        with self.progress.phase("everything is ended"):
            self.memory.stop()
            self.hosts.stop()
            self.aws.stop()

    def _tell(self) -> None:
        if self.hosts.acceptance_output:
            self.console.print(_tables_of(self.hosts.acceptance_output), markup=False, soft_wrap=True)
        print_times(self.console, self.progress.phases, self.progress.elapsed_s, self.memory.peak_mb or None)
        if self.spec.cloud_only and not self.outcome.faults:
            self.console.print("Without local hosts nothing was measured: everything up to Slurm is rehearsed.")
        print_result(self.console, self.outcome)
        if self.spec.as_json:
            print(json.dumps(self._as_json()))

    def _as_json(self) -> dict[str, object]:
        return {
            "settings": str(self.spec.original),
            "accepted": not self.outcome.faults and not self.outcome.interrupted,
            "faults": self.outcome.faults,
            "report": self.outcome.report,
            "folder": str(self.outcome.folder),
            "seconds": {phase.name: round(phase.seconds, 1) for phase in self.progress.phases},
            "peak_memory_mb": self.memory.peak_mb or None,
        }


def _tables_of(output: str) -> str:
    """What acceptance printed, without its progress and without places that are gone with the hosts."""
    dropped = (r" +[0-9.]+ s  ", r"report: /", r"uploaded: ", r" +log: /", r" +again: ", r"\[RESULT\] ")
    kept = [line for line in output.splitlines() if not re.match("|".join(dropped), line)]
    return "\n".join(kept).strip("\n")


def _verdict_in(reason: str) -> str:
    """The acceptance's own words without their prefix; every other reason as it is."""
    match = re.search(r"\[RESULT\] FAILURE: (.*)", reason, re.DOTALL)
    return (match[1] if match else reason).strip()
