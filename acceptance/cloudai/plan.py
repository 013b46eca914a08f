"""From a scenario to its jobs: iterations and points of sweeps, folders, dependencies, and everything that is written.

Dependencies become Slurm's own: `start_post_comp` is afterany of the other's last job, `start_post_init` after of its
first; iterations and points run one after another by afterany. A job that others end with (`end_post_comp`) cancels
them when it ends. So no process has to stay alive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from acceptance.cloudai.dynamo import ai_dynamo, dynamo_skips, role_nodes
from acceptance.cloudai.graph import submission_order
from acceptance.cloudai.hostlist import GROUP, Nodes, NodesError, choose
from acceptance.cloudai.jax import jax_toolbox
from acceptance.cloudai.load import System
from acceptance.cloudai.nemo import nemo_launcher, nemo_run, nemo_run_skips
from acceptance.cloudai.own import own_command
from acceptance.cloudai.schema import name_fault
from acceptance.cloudai.script import LAUNCHER, METADATA, SCRIPT, VARIABLES, Batch, Step, files_of, main_command
from acceptance.cloudai.standalone import NO_SLURM, on_this_machine, refuse
from acceptance.cloudai.stored import FILE, StoredJob, StoredPlan, StoredTest
from acceptance.cloudai.suite import PROGRAMS, suite_test
from acceptance.cloudai.sweep import points
from acceptance.cloudai.template_commands import SIMPLE, Command, CommandError, Job
from acceptance.cloudai.toml_text import toml_text
from acceptance.errors import InputError
from acceptance.runner.files import new_folder
from acceptance.runner.slurm import Node
from acceptance.scenario.runs import TestDefinition, TestRun, TestScenario
from acceptance.text import printable

_LONGEST_NAME = 200  # characters of a test's name in a job's name

SCHEDULERS = ("slurm", "standalone")  # of the systems whose scripts are written

GENERATORS: dict[str, Callable[[Job], Command]] = {
    **SIMPLE,
    "NeMoLauncher": nemo_launcher,
    "NeMoRun": nemo_run,
    "JaxToolboxGPT": jax_toolbox,
    "JaxToolboxGrok": jax_toolbox,
    "JaxToolboxNemotron": jax_toolbox,
    "AIDynamo": ai_dynamo,
    **dict.fromkeys(PROGRAMS, suite_test),
}


@dataclass(frozen=True)
class Planned:
    """One job. number: from 1, in the order of submission. needs: such as `afterany:3,after:1`, by numbers."""

    number: int
    run: TestRun
    iteration: int
    step: int
    batch: Batch
    needs: str
    point: Mapping[str, Any]

    @property
    def directory(self) -> Path:
        return self.batch.main.job.directory


@dataclass(frozen=True)
class Plan:
    """All jobs of a scenario. skipped: points of sweeps that cannot run, with the reason."""

    folder: Path
    jobs: tuple[Planned, ...]
    skipped: tuple[str, ...]
    scenario: TestScenario
    system: Mapping[str, Any]


def make_plan(
    scenario: TestScenario, system: System, output: Path, stamp: str, ask: Callable[[str], Sequence[Node]] | None = None
) -> Plan:
    """Return the jobs of a scenario. stamp: the time in the names of folder and jobs. Raises InputError.

    ask: returns the nodes of a partition as Slurm sees them, for groups; None takes a group's nodes in their order.
    """
    if system.scheduler not in SCHEDULERS:
        rule = f'scheduler = "{system.scheduler}": no scripts are written for this kind of system'
        raise InputError([f"{system.file.path}: {rule}. Hint: give a system with scheduler {' or '.join(SCHEDULERS)}"])
    if re.search(r"""[$"\\]""", str(output.absolute())) or not str(output.absolute()).isprintable():
        rule = "has characters that a batch script cannot name: '$', quotes, backslashes or control characters"
        raise InputError([f"{str(output)!r}: {rule}. Hint: give another folder with --output-dir"])
    return _Planner(scenario, system, (output / f"{scenario.name}_{stamp}").absolute(), stamp, ask).plan()


class _Planner:
    def __init__(
        self,
        scenario: TestScenario,
        system: System,
        folder: Path,
        stamp: str,
        ask: Callable[[str], Sequence[Node]] | None,
    ) -> None:
        self._alone = system.scheduler == "standalone"
        asked = ask and not self._alone
        self._states = {partition: ask(partition) for partition in _asked(scenario)} if ask and asked else None
        self._scenario, self._folder, self._stamp = scenario, folder, stamp
        self._groups = system.groups
        install = Path(system.values["install_path"]).absolute()
        self._system = {**(NO_SLURM if self._alone else {}), **system.values, "install_path": str(install)}
        self._faults: list[str] = []
        self._jobs: list[Planned] = []
        self._skipped: list[str] = []
        self._of: dict[str, list[int]] = {}  # id of a test -> numbers of its jobs
        self._by_id = {run.id: run for run in scenario.runs}
        self._followers: dict[str, list[str]] = {}  # id of a test -> those that end with it
        for run in scenario.runs:
            for need in run.dependencies:
                if need.kind == "end_post_comp":
                    self._followers.setdefault(need.id, []).append(run.id)

    def plan(self) -> Plan:
        for run in submission_order(self._scenario.runs):
            self._refuse_launcher(run)
            self._plan_run(run)
        if self._faults:
            raise InputError(self._faults)
        return Plan(self._folder, tuple(self._jobs), tuple(self._skipped), self._scenario, self._system)

    def _fault(self, run: TestRun, words: str) -> None:
        self._faults.append(f"{self._scenario.name}: {run.id}: {words}")

    def _refuse_launcher(self, run: TestRun) -> None:
        """NeMo's launcher submits a job of its own, whose id is not known here."""
        for dependency in run.dependencies:
            for one in (run, self._by_id[dependency.id]):
                if one.test.template == "NeMoLauncher":
                    words = (
                        f"{dependency.kind} {dependency.id} cannot be given to Slurm: NeMo's launcher submits the job"
                    )
                    self._fault(run, f"{words} of {one.id} itself. Hint: remove the dependency, or use NeMoRun")

    def _plan_run(self, run: TestRun) -> None:
        numbered = enumerate(points(run), 1)
        usable = [(step, point, one) for step, (point, one) in numbered if self._runs(run, point, one)]
        swept = bool(usable) and bool(usable[0][1])
        numbers = self._of.setdefault(run.id, [])
        if not usable:
            self._fault(run, "no point of its sweep can run. Hint: change its lists")
            return
        jobs = [(iteration, *entry) for iteration in range(run.iterations) for entry in usable]
        for index, (iteration, step, point, one) in enumerate(jobs):
            directory = self._folder / run.id / str(iteration) / (str(step) if swept else "")
            try:
                batch = self._batch(one, directory, iteration, step if swept else 0, index == len(jobs) - 1)
            except (NodesError, CommandError) as error:
                hint = f". Hint: {error.hint}" if isinstance(error, NodesError) else ". Hint: correct the test"
                self._fault(run, f"{error}{hint}")
                return
            number = len(self._jobs) + 1
            needs = f"afterany:{numbers[-1]}" if numbers else self._needs(run)
            self._jobs.append(Planned(number, one, iteration, step if swept else 0, batch, needs, point))
            numbers.append(number)

    def _runs(self, run: TestRun, point: Mapping[str, Any], one: TestRun) -> bool:
        """Whether a point of a sweep can run; notes the reason if it cannot."""
        reason = None
        if point and one.test.template == "NeMoRun":
            reason = nemo_run_skips(one.test.arguments, one.counts[0] if one.counts else 1)
        elif point and one.test.template == "AIDynamo":
            constraints = one.test.other.get("constraints", {})
            reason = dynamo_skips(one.test.arguments, constraints, self._system.get("gpus_per_node"))
        if reason:
            values = ", ".join(f"{name}={value}" for name, value in point.items())
            self._skipped.append(f"{run.id}: {values}: {reason}")
        return reason is None

    def _needs(self, run: TestRun) -> str:
        """The dependencies of a test's first job. All hold: sbatch joins them by AND."""
        parts = []
        for dependency in run.dependencies:
            numbers = self._of.get(dependency.id)
            if numbers and dependency.kind == "start_post_comp":
                parts.append(f"afterany:{numbers[-1]}")
            elif numbers and dependency.kind == "start_post_init":
                parts.append(f"after:{numbers[0]}")
        return ",".join(dict.fromkeys(parts)) or "-"

    def _batch(self, run: TestRun, directory: Path, iteration: int, step: int, last: bool) -> Batch:
        scenario = self._scenario
        if self._alone:
            refuse(run)
        main = self._step(
            run, directory, choose(run.nodes, node_count(run), run.exclude_nodes, self._groups, self._states)
        )
        hooks = {
            kind: tuple(self._hook(one, directory / kind, main.job.nodes) for one in (hook.runs if hook else ()))
            for kind, hook in (("pre_test", scenario.pre_test), ("post_test", scenario.post_test))
        }
        for kind, steps in hooks.items():
            names = [step.job.test.name for step in steps]
            for name in {name for name in names if names.count(name) > 1}:
                raise CommandError(f"its {kind} runs the test {name} twice, and both would write to one folder")
        own = [one.time_limit_s for hook in (scenario.pre_test, scenario.post_test) if hook for one in hook.runs]
        limit = run.time_limit_s + sum(one for one in own if one) if run.time_limit_s else None
        which = f"iteration {iteration}" + (f", step {step}" if step else "")
        account = self._system.get("account")
        test_name = printable(run.test.name)[:_LONGEST_NAME]
        return Batch(
            title=f"{run.id} of the scenario {scenario.name}, {which}",
            number=len(self._jobs) + 1,
            name=f"{account}-{test_name}.{self._stamp}" if account else f"{test_name}_{self._stamp}",
            main=main,
            pre=hooks["pre_test"],
            post=hooks["post_test"],
            time_limit_s=limit,
            ends=tuple(self._followers.get(run.id, ())) if last else (),
            ends_all=scenario.job_status_check and len(scenario.runs) > 1,
            folder=self._folder,
        )

    def _step(self, run: TestRun, directory: Path, nodes: Nodes) -> Step:
        job = Job(run.test, self._system, nodes, directory)
        command = own_command(job) if "own" in run.test.other else GENERATORS[run.test.template](job)
        if command.image and re.search("[,:]", str(directory)):
            raise CommandError(
                f"its folder {directory} has a comma or a colon, and no mount of a container can have them"
            )
        step = Step(job, command, run.srun_arguments)
        return on_this_machine(step) if self._alone else step

    def _hook(self, run: TestRun, directory: Path, main: Nodes) -> Step:
        """A hook runs inside the job, on as many of its nodes as it asks for."""
        count = node_count(run)
        if count > main.count:
            raise CommandError(f"its hook {run.test.name} needs {count} nodes, the test has {main.count}")
        if run.test.template == "NeMoLauncher":
            raise CommandError(f"its hook {run.test.name} is a NeMoLauncher, which submits a job of its own")
        fault = name_fault(run.test.name)
        if fault:
            raise CommandError(f"the name of its hook's test, {run.test.name!r}, is a folder's name and {fault}")
        step = self._step(run, directory / run.test.name, Nodes(count))
        return replace(step, is_hook=True)


def _asked(scenario: TestScenario) -> list[str]:
    """The partitions of whose groups nodes are chosen."""
    matches = (GROUP.fullmatch(one) for run in scenario.runs for one in run.nodes)
    return list(dict.fromkeys(match[1] for match in matches if match))


def node_count(run: TestRun) -> int:
    """Return the number of nodes; that of AIDynamo follows from its roles if the scenario has none."""
    if run.counts:
        return run.counts[0]
    return role_nodes(run.test.arguments) if run.test.template == "AIDynamo" else 1


def write_plan(plan: Plan) -> None:
    """Write the folder of a scenario, whole or not at all: the scripts, and what submits them.

    Raises InputError if it exists.
    """
    if plan.folder.exists():
        raise InputError([f"{plan.folder}: exists. Hint: give another folder with --output-dir, or try again"])
    with new_folder(plan.folder) as folder:
        for planned in plan.jobs:
            directory = folder / planned.directory.relative_to(plan.folder)
            directory.mkdir(parents=True)
            for name, text in {**files_of(planned.batch), "test-run.toml": _record(planned)}.items():
                if "/" in name:
                    (directory / name).parent.mkdir(parents=True, exist_ok=True)
                _write(directory / name, text)
        alone = plan.system["scheduler"] == "standalone"
        for name in ("run.sh",) if alone else ("submit.sh", "end-jobs.sh", METADATA):
            _write(folder / name, files("acceptance.cloudai").joinpath(name).read_text("utf-8"))
        _write(folder / "plan.tsv", "".join(_rows(plan.jobs)))
        _write(folder / FILE, _stored(plan).text())


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    if path.suffix == ".sh" and path.name != VARIABLES:
        path.chmod(0o755)


def _stored(plan: Plan) -> StoredPlan:
    system = plan.system
    return StoredPlan(
        scenario=plan.scenario.name,
        system=system["name"],
        partition=system["default_partition"],
        gpus_per_node=system.get("gpus_per_node") or 1,
        tests=tuple(
            StoredTest(
                run.id,
                run.test.name,
                run.test.template,
                run.test.description,
                tuple((one.kind, one.id) for one in run.dependencies),
                run.test.other.get("own"),
            )
            for run in plan.scenario.runs
        ),
        jobs=tuple(_stored_job(planned, plan.folder) for planned in plan.jobs),
        skipped=plan.skipped,
        scheduler=system["scheduler"],
        data_repository=system.get("data_repository"),
    )


def _stored_job(planned: Planned, folder: Path) -> StoredJob:
    batch, test = planned.batch, planned.run.test
    return StoredJob(
        number=planned.number,
        test=planned.run.id,
        path=str(planned.directory.relative_to(folder)),
        iteration=planned.iteration,
        step=planned.step,
        nodes=batch.main.job.nodes.count,
        names=batch.main.job.nodes.names,
        tasks=batch.main.job.system.get("ntasks_per_node") or 1,
        needs=planned.needs,
        ends=batch.ends,
        ends_all=batch.ends_all,
        by_launcher=batch.main.command.by_launcher,
        time_limit_s=batch.time_limit_s,
        command=main_command(batch),
        arguments=test.arguments,
        options=test.options,
        environment=test.environment,
        point=planned.point,
        post_tests=tuple(step.job.test.name for step in batch.post),
    )


def _rows(jobs: Sequence[Planned]) -> Iterator[str]:
    for one in jobs:
        if not one.batch.main.command.by_launcher:
            how: tuple[object, ...] = (one.directory / SCRIPT, one.needs)
            if one.batch.main.job.system["scheduler"] == "standalone":
                how = (one.directory / LAUNCHER, one.batch.time_limit_s or 0, int(one.batch.ends_all))
            cells = (one.number, one.run.id, one.iteration, one.step, *how)
            yield "\t".join(map(str, cells)) + "\n"


def launchers(plan: Plan) -> list[Path]:
    """Return the commands that are run on the head node, because they submit a job themselves."""
    return [one.directory / LAUNCHER for one in plan.jobs if one.batch.main.command.by_launcher]


def _record(planned: Planned) -> str:
    """Return test-run.toml: what was planned, with the test's values at this point."""
    run, batch = planned.run, planned.batch
    return toml_text(
        {
            "name": run.id,
            "nnodes": batch.main.job.nodes.count,
            "nodes": list(run.nodes),
            "output_path": str(planned.directory),
            "iterations": run.iterations,
            "current_iteration": planned.iteration,
            "step": planned.step,
            "test_cmd": batch.main.command.text,
            "full_cmd": main_command(batch),
            "test_definition": _definition(run.test),
        }
    )


def _definition(test: TestDefinition) -> dict[str, Any]:
    fields = {
        "name": test.name,
        "description": test.description,
        "test_template_name": test.template,
        "dse_excluded_args": list(test.literal),
        "extra_container_mounts": list(test.mounts),
        **test.other,
        "cmd_args": test.arguments,
        "extra_env_vars": test.environment,
        "extra_cmd_args": test.options,
        "git_repos": list(test.repositories),
        "nsys": test.nsys,
    }
    return {name: value for name, value in fields.items() if value not in (None, [], {})}
