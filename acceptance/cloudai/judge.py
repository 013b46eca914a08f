"""The verdict of each job of a scenario, with its cause: from the job's end, its notes, and what its template left."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from acceptance.cloudai.notes import Notes, read_notes
from acceptance.cloudai.own import own_results
from acceptance.cloudai.results import Results, results_of
from acceptance.cloudai.script import NOTES
from acceptance.cloudai.stored import NEVER, StoredJob, StoredPlan
from acceptance.cloudai.suite import PROGRAMS
from acceptance.limits import Check, worst
from acceptance.nccl import Log, parse_stream
from acceptance.report.build import measured_report
from acceptance.report.model import TestReport
from acceptance.runner.files import open_plain, read_plain
from acceptance.runner.judged import JudgedLog, causes_of, checks_of
from acceptance.runner.record import TestRecord
from acceptance.scenario.model import COLLECTIVES, Limit, Scenario, Test
from acceptance.scenario.runs import NCCL_TEMPLATE, TestDefinition, TestRun, as_sweep, bytes_of
from acceptance.text import printable

UNKNOWN = "unknown type"  # the instance type on a cluster without an acceptance.json
_LONGEST = 200  # characters of a line of stderr.txt in a message
_LAST = 65_536  # bytes of stderr.txt that are looked at


@dataclass(frozen=True)
class Judge:
    """Judges the jobs of one folder. facts: what is known of the cluster: instance type, network, limits."""

    folder: Path
    plan: StoredPlan
    facts: Scenario
    jobs_by_id: Mapping[int, str]

    def report(self, job: StoredJob, record: TestRecord | None) -> TestReport:
        """Return the report of one job."""
        notes = read_notes(self.folder / job.path / NOTES)
        template = self.plan.test(job).template
        reason = self._not_run(record)
        if reason is not None:
            log, checks = Log(), [reason]
        elif template == NCCL_TEMPLATE and not _failed_gate(notes):
            return self._nccl(job, record, notes)
        else:
            log = _log(self.folder / job.path)
            checks = self._checks(job, record, notes, log)
        scenario, test = self._scenario(job), Test(job.path, "", 0, 0, 1, 0, 0, 0)
        report = measured_report(scenario, test, record, JudgedLog(log, tuple(checks)))
        reports = template in PROGRAMS and not _failed_gate(notes)  # the GPU suite's, which a failed test has too
        figures, more = self._results(job) if reason is None and (reports or _done(record)) else ([], [])
        verdict = "not run" if record is None or record.outcome is None else report.verdict
        checks = [*report.checks, *more]
        verdict = verdict if verdict == "not run" else worst([check.outcome for check in checks])
        return replace(report, verdict=verdict, checks=tuple(checks), figures=tuple(figures))

    def _results(self, job: StoredJob) -> Results:
        test, folder = self.plan.test(job), self.folder / job.path
        return own_results(test.own, folder) if test.own else results_of(test.template, folder)

    def _not_run(self, record: TestRecord | None) -> Check | None:
        """Why a job has no result of its own: it was not submitted, has not ended, or was ended on purpose."""
        if record is None or record.job_id is None:
            return Check("job", "fail", "was not submitted")
        outcome = record.outcome
        if outcome is None:
            return Check("job", "fail", f"job {record.job_id} has not ended, as far as is known")
        if NEVER in outcome.message:
            return Check("job", "skipped", outcome.message)
        if outcome.state != "CANCELLED":
            return None
        try:
            why, _, by = read_plain(self.folder / "ended" / str(record.job_id)).strip().partition(" ")
        except (OSError, ValueError):
            return None
        other = self.jobs_by_id.get(int(by), f"job {by}") if by.isdigit() else "another job"
        if why == "end_post_comp":
            return Check("job", "pass", f"was ended when {other} ended, as end_post_comp asks")
        return Check("job", "skipped", f"was cancelled because {other} failed (job_status_check)")

    def _checks(self, job: StoredJob, record: TestRecord | None, notes: Notes, log: Log) -> list[Check]:
        """The checks of a job that has ended, of any template but NcclTest, or whose pre_test failed."""
        outcome = record.outcome if record else None
        if outcome is None:
            return []
        again = _requeued(notes)
        if outcome.kind == "done":
            return [*again, Check("job", "pass", outcome.message)]
        gate = _failed_gate(notes)
        if gate:
            return [*again, *self._gate(job, gate), *causes_of(_log(self.folder / job.path / "pre_test" / gate))]
        after = notes.step("post_test")
        if after and after.code:
            where = f"post_test/{after.name}/stderr.txt"
            message = f"failed with exit code {after.code} after the test ended well{_said(self.folder, job, where)}"
            return [*again, Check(f"post_test {after.name}", "fail", message)]
        began = "" if notes.step("test") or job.by_launcher else "; it ended before the test began"
        words = _said(self.folder, job, "stderr.txt") if outcome.kind == "failed" else ""
        message = f"{outcome.message}{began}{words}"
        skipped = [Check(f"post_test {name}", "skipped", "the test failed") for name in job.post_tests]
        return [*again, *causes_of(log), Check("job", "fail", message), *skipped]

    def _gate(self, job: StoredJob, gate: str) -> list[Check]:
        hook = f"pre_test/{gate}/stderr.txt"
        skipped = "the pre_test failed"
        return [
            Check(f"pre_test {gate}", "fail", f"failed, so that the test did not run{_said(self.folder, job, hook)}"),
            Check("test", "skipped", skipped),
            *(Check(f"post_test {name}", "skipped", skipped) for name in job.post_tests),
        ]

    def _nccl(self, job: StoredJob, record: TestRecord | None, notes: Notes) -> TestReport:
        """NcclTest: judged as the tests of an acceptance.json are."""
        log, sweep = _log(self.folder / job.path), _sweep(job)
        scenario = self._scenario(job, log)
        path = self.folder / job.path / "stdout.txt"
        checks = checks_of(scenario, sweep, record.outcome if record else None, log, path)
        after = notes.step("post_test")
        if after and after.code and record and not _done(record):
            checks = [check for check in checks if check.name != "job"]
            checks += [one for one in self._checks(job, record, notes, log) if one.name.startswith("post_test")]
        elif not _done(record):
            checks += [Check(f"post_test {name}", "skipped", "the test failed") for name in job.post_tests]
        return measured_report(scenario, sweep, record, JudgedLog(log, (*_requeued(notes), *checks)))

    def _scenario(self, job: StoredJob, log: Log | None = None) -> Scenario:
        """The facts as they are for one job. Limits hold for nodes of which all GPUs take part."""
        nodes, ranks = ranks_of(job)
        known = self.facts
        if ranks != known.gpus_per_node and known.instance_type != UNKNOWN:
            part = f"{known.instance_type} with {ranks} of {known.gpus_per_node} GPUs"
            known = replace(known, instance_type=part, limits=())
        network = known.network if nodes > 1 and log is not None and log.network.seen else None
        least = job.arguments.get("min_busbw")
        if least is not None:
            sweep = _sweep(job)
            size = max(sweep.sizes())
            own = Limit(sweep.collective, nodes, nodes, size, float(least), None, "min_busbw of the test", "-")
            known = replace(known, limits=(own,))
        return replace(known, nodes=nodes, gpus_per_node=ranks, network=network, missing_limit="warn")


def ranks_of(job: StoredJob) -> tuple[int, int]:
    """Return the nodes that take part in an NcclTest, and the ranks of each. A program without `_mpi` runs alone."""
    program = str(job.arguments.get("subtest_name", ""))
    gpus = int(job.arguments.get("ngpus") or 1)
    alone = not program.endswith("_mpi") and not program.startswith("/")
    return (1, gpus) if alone else (job.nodes, job.tasks * gpus)


def _done(record: TestRecord | None) -> bool:
    return record is not None and record.outcome is not None and record.outcome.kind == "done"


def _failed_gate(notes: Notes) -> str:
    """The name of the pre_test that failed, empty without one."""
    step = notes.step("pre_test")
    return step.name if step and step.code else ""


def _requeued(notes: Notes) -> list[Check]:
    if notes.starts < 2:
        return []
    return [Check("requeued", "warn", f"began {notes.starts} times: Slurm put it back into the queue")]


def _sweep(job: StoredJob) -> Test:
    definition = TestDefinition(job.test, "", NCCL_TEMPLATE, job.arguments, options=job.options)
    try:
        return as_sweep(TestRun(job.path, definition, time_limit_s=job.time_limit_s))
    except ValueError:  # a collective that is not judged, such as alltoallv
        program = str(job.arguments.get("subtest_name", "")).rsplit("/", 1)[-1]
        name = program.partition("_perf")[0]
        collective = name if name not in COLLECTIVES else ""
        most = bytes_of(str(job.arguments.get("maxbytes", "0")))
        return Test(job.path, collective, most, most, 1, 0, 0, job.time_limit_s or 0)


def _log(folder: Path) -> Log:
    """What a job printed, both streams."""
    with ExitStack() as stack:
        streams = []
        for name in ("stdout.txt", "stderr.txt"):
            try:
                streams.append(stack.enter_context(os.fdopen(open_plain(folder / name), "rb", buffering=0)))
            except OSError:
                continue
        return parse_stream(*streams) if streams else Log()


def _said(folder: Path, job: StoredJob, name: str) -> str:
    """The last line of a stream of errors that is not Slurm's own, as the end of a message."""
    try:
        descriptor = open_plain(folder / job.path / name)
        with os.fdopen(descriptor, "rb") as stream:
            stream.seek(max(0, os.fstat(descriptor).st_size - _LAST))
            lines = stream.read(_LAST).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    own = [line.strip() for line in lines if line.strip() and not line.startswith(("srun: ", "slurmstepd: "))]
    own = own or [line.strip() for line in lines if line.strip()]
    return f". Its last words: {printable(own[-1])[:_LONGEST]}" if own else ""
