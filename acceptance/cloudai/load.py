"""Reading CloudAI's files: which kind each is, its values, the tests that a scenario names, and every fault at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from acceptance.cloudai import old
from acceptance.cloudai.dynamo import NODE_LIST
from acceptance.cloudai.forms import INVALID, read_table
from acceptance.cloudai.graph import check_dependencies
from acceptance.cloudai.own import read_template
from acceptance.cloudai.remarks import NO_VALUE, Remark, Remarks, Spot, did_you_mean
from acceptance.cloudai.schema import RUN, SCENARIO, SHARED, SYSTEMS, TEST
from acceptance.cloudai.shell import has_command
from acceptance.cloudai.sweep import point_count
from acceptance.cloudai.templates import TEMPLATES, Template, refusal
from acceptance.cloudai.toml_file import TomlFile, read_toml
from acceptance.errors import InputError
from acceptance.options import resolved
from acceptance.scenario.runs import Dependency, TestDefinition, TestRun, TestScenario

MOST_JOBS = 10_000  # of a scenario: MaxJobCount of Slurm, if slurm.conf has no other (man slurm.conf, 22.05 to 25.11)
KINDS = {"scheduler": "system", "Tests": "scenario", "test_template_name": "test", "template": "template"}
_RUN_TEST = ("name", "description", "test_template_name", "cmd_args", *SHARED)
_OF_DEFINITION = (
    *("name", "description", "test_template_name", "cmd_args", "extra_env_vars", "extra_cmd_args"),
    *("extra_container_mounts", "git_repos", "nsys", "dse_excluded_args"),
)
_NOT_IN_RUNS = ("extra_cmd_args", "predictor", "training_report", "env_params")


@dataclass(frozen=True)
class System:
    """A system file: its kind (`scheduler`) and its values with defaults."""

    file: TomlFile
    scheduler: str
    values: Mapping[str, Any]

    @property
    def groups(self) -> dict[str, dict[str, list[str]]]:
        """Partition -> group -> its node expressions."""
        return {
            partition["name"]: {group["name"]: group["nodes"] for group in partition["groups"]}
            for partition in self.values.get("partitions", ())
        }


@dataclass(frozen=True)
class LoadedTest:
    """A test file: its fields with defaults. template: None where it is refused. sound: no error was found in it."""

    file: TomlFile
    fields: Mapping[str, Any]
    template: Template | None
    sound: bool

    @property
    def name(self) -> str:
        return str(self.fields.get("name", ""))


@dataclass
class Tree:
    """Everything that was read. kinds: of each file. hooks: the name of each hook's scenario and its file.

    used: the files that the scenarios need: themselves, their hooks, tests and own templates.
    """

    remarks: Remarks = field(default_factory=Remarks)
    systems: list[System] = field(default_factory=list)
    tests: list[LoadedTest] = field(default_factory=list)
    scenarios: list[tuple[TomlFile, TestScenario]] = field(default_factory=list)
    kinds: dict[Path, str] = field(default_factory=dict)
    hooks: dict[str, Path] = field(default_factory=dict)
    files: dict[Path, TomlFile] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    templates: dict[str, Template] = field(default_factory=dict)

    def relevant(self, remarks: Iterable[Remark], *paths: Path) -> list[Remark]:
        """Return the remarks about these files and those that the scenarios need.

        After an error, those of files that could not be read too: a test that is missing may be in one of them.
        """
        remarks, files = list(remarks), self.used | set(map(str, paths))
        if any(remark.file in files and not remark.warning for remark in remarks):
            files |= {remark.file for remark in remarks} - set(map(str, self.kinds))
        return [remark for remark in remarks if remark.file in files]


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return the TOML files at and below paths, sorted, each once. Raises InputError for paths that do not exist."""
    faults, files = [], dict[Path, None]()
    for path in paths:
        if path.is_dir():
            unreadable: list[OSError] = []
            walk = os.walk(path, onerror=unreadable.append)
            below = [Path(folder) / name for folder, _, names in walk for name in names]
            found = sorted(one for one in below if one.suffix == ".toml" and not one.name.startswith("."))
            faults += [f"{one.filename}: {one.strerror}. Hint: make the folder readable" for one in unreadable]
            if not found and not unreadable:
                faults.append(f"{path}: has no TOML file. Hint: give the folder of CloudAI's files")
            files.update(dict.fromkeys(found))
        elif path.exists():
            files[path] = None
        else:
            faults.append(f"{path}: does not exist. Hint: give TOML files, or folders of them")
    if faults:
        raise InputError(faults)
    return list(files)


def folders_of(scenario: Path) -> tuple[Path, Path | None]:
    """Return the folder of a scenario's tests and that of the hooks (None without one), in CloudAI's own layout.

    Tests are in the folder `test` next to the scenario's folder, else below that folder, else in it. Hooks are in the
    nearest folder `hook` or `conf/hook`: next to the scenario, or next to one of the four folders above it.
    """
    folder = scenario.parent
    tests = (one for one in (folder.parent / "test", folder / "test") if any(one.glob("*.toml")))
    hooks = (one / name for one in (folder, *folder.absolute().parents[:4]) for name in ("hook", "conf/hook"))
    return next(tests, folder), next((one for one in hooks if one.is_dir()), None)


def kind_of(data: Mapping[str, Any]) -> str | None:
    """Return system, scenario, test or template; None for any other file."""
    return next((kind for key, kind in KINDS.items() if key in data), None)


def load_tree(
    paths: Sequence[Path], tests_dir: Path | None = None, hook_dir: Path | None = None, *, default_hooks: bool = True
) -> Tree:
    """Read all files of these paths. Scenarios find their tests in `tests_dir`, or near them among the paths.

    default_hooks: without `hook_dir`, take the hooks of conf/hook in the current folder. Raises InputError for paths
    that do not exist.
    """
    tree = Tree()
    main = find_files(paths)
    named = _toml_files(tests_dir) if tests_dir else []
    hooks = _hook_files(hook_dir, main) if hook_dir or default_hooks else []
    files = {path: _read(path, tree) for path in dict.fromkeys([*main, *named, *hooks])}
    for path, file in files.items():
        if file and tree.kinds.get(path) == "template":
            template = read_template(file, tree.remarks, tree.templates)
            tree.templates.update({template.name: template} if template else {})
    for path, file in files.items():
        kind = tree.kinds.get(path)
        if file and kind == "system":
            system = read_system(file, tree.remarks)
            tree.systems += [system] if system else []
        elif file and kind == "test":
            tree.tests.append(read_test(file, tree.remarks, tree.templates))
        elif file and kind == "scenario" and _is_hook(path, hook_dir):
            tree.hooks.setdefault(str(file.data.get("name")), path)
    _refuse_duplicates(tree)
    inside = set(named)
    for path in main:
        if tree.kinds.get(path) == "scenario":
            here = [test for test in tree.tests if test.file.path in inside] if tests_dir else tree.tests
            read_in_tree(tree.files[path], tree, here, path in tree.hooks.values())
    return tree


def _toml_files(folder: Path) -> list[Path]:
    """The TOML files of one folder, without those below it, as CloudAI takes them."""
    if not folder.is_dir():
        raise InputError([f"{folder}: is not a folder. Hint: give the folder of the test files"])
    return sorted(path for path in folder.glob("*.toml") if not path.name.startswith("."))


def _hook_files(hook_dir: Path | None, main: Sequence[Path]) -> list[Path]:
    """The hooks of `hook_dir`, else of ./conf/hook where no path that was given has hooks."""
    folder = hook_dir or Path("conf/hook")
    if hook_dir is None and (any(_is_hook(path, None) for path in main) or not folder.is_dir()):
        return []
    below = folder / "test"
    return [*_toml_files(folder), *(_toml_files(below) if below.is_dir() else [])]


def _is_hook(path: Path, hook_dir: Path | None) -> bool:
    return path.parent.name == "hook" or (hook_dir is not None and resolved(path.parent) == resolved(hook_dir))


def _read(path: Path, tree: Tree) -> TomlFile | None:
    try:
        file = read_toml(path)
    except InputError as error:
        for fault in error.faults:
            tree.remarks.add_unreadable(fault)
        return None
    kind = kind_of(file.data)
    tree.files[path] = file
    if kind is None:
        hint = "a system has scheduler, a test test_template_name, a scenario [[Tests]], an own template [template]"
        near = [f"did you mean {key} for {name}?" for name in file.data for key in KINDS if _alike(name, key)]
        Spot(file, tree.remarks).error(NO_VALUE, "is neither a system, a test nor a scenario", (near or [hint])[0])
        return None
    tree.kinds[path] = kind
    return file


def _alike(name: str, key: str) -> bool:
    return bool(did_you_mean(name.lower(), [key.lower()], ""))


def _refuse_duplicates(tree: Tree) -> None:
    """Two tests of one name are a fault in one folder only: CloudAI's own tree repeats names across folders."""
    first: dict[tuple[Path, str], LoadedTest] = {}
    for test in tree.tests:
        before = first.setdefault((test.file.path.parent, test.name), test)
        if before is not test:
            spot = Spot(test.file, tree.remarks, ("name",))
            spot.error(test.name, f"is also the name of {before.file.path}", "give each test of a folder its own name")


def read_system(file: TomlFile, remarks: Remarks) -> System | None:
    """Return the system, also if errors were found; None if its scheduler is unknown."""
    spot = Spot(file, remarks)
    scheduler = file.data["scheduler"]
    if not isinstance(scheduler, str) or scheduler not in SYSTEMS:
        spot.at("scheduler").error(
            scheduler, f"must be one of {', '.join(SYSTEMS)}", did_you_mean(scheduler, SYSTEMS, "write slurm")
        )
        return None
    data, notes = old.modernise("system", file.data, file.renamed.__setitem__)
    old.warn(notes, spot)
    values = read_table(SYSTEMS[scheduler], data, spot)
    names = [partition.get("name") for partition in values.get("partitions", ())]
    wanted = values.get("default_partition")
    if scheduler == "slurm" and wanted and names and wanted not in names:
        hint = did_you_mean(wanted, [str(name) for name in names], f"its partitions: {', '.join(map(str, names))}")
        spot.at("default_partition").error(wanted, "is not one of the partitions of this file", hint)
    return System(file, scheduler, values)


def read_test(file: TomlFile, remarks: Remarks, own: Mapping[str, Template]) -> LoadedTest:
    """Return the test, also if errors were found, so that a scenario that names it does not report it as missing."""
    before = len(remarks.errors)
    spot = Spot(file, remarks)
    data, notes = old.modernise("test", file.data, file.renamed.__setitem__)
    template = _template(data.get("test_template_name"), spot, own)
    if template is None:
        return LoadedTest(file, data, None, sound=False)
    old.warn(notes, spot)
    fields = _fields(template, data, spot)
    return LoadedTest(file, fields, template, len(remarks.errors) == before)


def _template(name: Any, spot: Spot, own: Mapping[str, Template]) -> Template | None:
    if str(name) in own:
        return own[str(name)]
    refused = refusal(str(name), own)
    if refused:
        spot.at("test_template_name").error(name, *refused)
        return None
    return TEMPLATES[str(name)]


def _fields(template: Template, data: Mapping[str, Any], spot: Spot) -> dict[str, Any]:
    """Read the fields of a whole test."""
    fields = read_table({**TEST, **template.fields}, data, spot)
    fields["cmd_args"] = _arguments(template, data.get("cmd_args", {}), spot)
    _check_test(fields, template, spot)
    return fields


def _arguments(template: Template, value: Any, spot: Spot) -> dict[str, Any]:
    if not isinstance(value, dict):
        spot.at("cmd_args").error(value, "must be a table", "write [cmd_args]")
        return {}
    return read_table(template.arguments, value, spot.at("cmd_args"), template.others)


def _check_test(fields: Mapping[str, Any], template: Template, spot: Spot) -> None:
    """Check what concerns the template and what is not run here."""
    agent = fields.get("agent", "grid_search")
    if agent != "grid_search":
        spot.at("agent").error(agent, "is an agent that is not run here: a sweep is a grid", "write grid_search")
    if fields.get("env_params"):
        rule = "draws values at random, which the grid refuses"
        spot.at("env_params").error(list(fields["env_params"]), rule, "remove it: each list is a sweep")
    if fields.get("predictor"):
        if template.name != "NcclTest":
            spot.at("predictor").error(NO_VALUE, "is a field of NcclTest only", "remove it")
        else:
            spot.at("predictor").warn(NO_VALUE, "is read, but no predictor is run here", "remove it")
    for name, value in {**fields.get("extra_env_vars", {})}.items():
        for part in value if isinstance(value, list) else [value]:
            if has_command(part) and not (template.name == "AIDynamo" and name == NODE_LIST):
                rule = "has a command of the shell, which is passed on as text and not run"
                spot.at("extra_env_vars", name).warn(part, rule, "write the value itself; $NAME is replaced in the job")
    if fields.get("cmd_args", {}).get("use_deepep_matrix"):
        rule = "needs the result of a MoEBenchmark, which is not run here"
        spot.at("cmd_args", "use_deepep_matrix").error(True, rule, "write false")


def read_in_tree(file: TomlFile, tree: Tree, tests: Sequence[LoadedTest], is_hook: bool) -> TestScenario | None:
    """Read a scenario with the nearest tests and hooks, and add it to the tree. Returns it if it has no error."""
    before = len(tree.remarks.errors)
    mine = [test for test in tests if _is_hook(test.file.path.parent, None) == is_hook] if is_hook else tests
    scenario = read_scenario(file, tree.remarks, _Nearest(file.path, mine, tree))
    if scenario is None:
        return None
    hooks: dict[str, Any] = {}
    for kind in ("pre_test", "post_test"):
        name = file.data.get(kind)
        if isinstance(name, str) and is_hook:
            Spot(file, tree.remarks, (kind,)).error(name, "is a hook of a hook", "remove it")
        elif isinstance(name, str):
            hooks[kind] = _hook(name, Spot(file, tree.remarks, (kind,)), tree)
    scenario = replace(scenario, **hooks)
    tree.scenarios.append((file, scenario))
    return scenario if len(tree.remarks.errors) == before else None


def _hook(name: str, spot: Spot, tree: Tree) -> TestScenario | None:
    path = tree.hooks.get(name)
    if path is None:
        known = f"the hooks are: {', '.join(tree.hooks)}" if tree.hooks else "put its scenario into conf/hook"
        spot.error(name, "is not the name of a hook's scenario", did_you_mean(name, tree.hooks, known))
        return None
    tests = [test for test in tree.tests if test.file.path.parent in (path.parent, path.parent / "test")]
    return read_scenario(tree.files[path], tree.remarks, _Nearest(path, tests, tree))


class _Nearest:
    """The tests of a name that are nearest to a scenario: below the lowest folder above it that has one.

    `used` of the tree receives the scenario's file, and those of its tests and own templates.
    """

    def __init__(self, scenario: Path, tests: Sequence[LoadedTest], tree: Tree) -> None:
        self._parts, self._used, self._templates = resolved(scenario).parent.parts, tree.used, tree.templates
        self._used.add(str(scenario))
        self.tests: dict[str, list[LoadedTest]] = {}
        for test in tests:
            self.tests.setdefault(test.name, []).append(test)

    def find(self, name: str) -> list[LoadedTest]:
        same = self.tests.get(name, [])
        if len(same) > 1:
            shared = [self._shared(test) for test in same]
            same = [test for test, length in zip(same, shared) if length == max(shared)]
        self._used.update(str(test.file.path) for test in same)
        self._used.update(test.template.own["file"] for test in same if test.template and test.template.own)
        return same

    def template(self, name: Any, spot: Spot) -> Template | None:
        """Return the template of a test that is written in the scenario; None, with a remark, if it is refused."""
        template = _template(name, spot, self._templates)
        self._used.update([template.own["file"]] if template and template.own else [])
        return template

    def _shared(self, test: LoadedTest) -> int:
        theirs = resolved(test.file.path).parent.parts
        pairs = zip(self._parts, theirs)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self._parts), len(theirs)))


def read_scenario(file: TomlFile, remarks: Remarks, lookup: _Nearest) -> TestScenario | None:
    """Read a scenario. Of several tests of a name that are equally near, all are checked, and the first is taken."""
    spot = Spot(file, remarks)
    data, notes = old.modernise("scenario", file.data, file.renamed.__setitem__)
    if isinstance(data.get("Tests"), dict):
        spot.at("Tests").error(
            list(data["Tests"]), "must be a list of tables", "write each test as [[Tests]] with its id"
        )
        return None
    old.warn(notes, spot)
    values = read_table(SCENARIO, data, spot)
    runs = [
        _run(run, spot.at("Tests", index), lookup)
        for index, run in enumerate(values.get("Tests", ()))
        if _is_table(run, spot.at("Tests", index))
    ]
    check_dependencies(values.get("Tests", ()), spot)
    usable = tuple(run for run in runs if run)
    _check_number_of_jobs(usable, spot.at("Tests"))
    return TestScenario(
        name=values.get("name", ""),
        runs=usable,
        job_status_check=values["job_status_check"],
        reports=values["reports"],
    )


def _check_number_of_jobs(runs: Sequence[TestRun], spot: Spot) -> None:
    jobs = {run.id: run.iterations * point_count(run) for run in runs}
    for name in [name for name, count in jobs.items() if count == 0]:
        spot.error(NO_VALUE, f"{name} has a sweep without a point: one of its lists is empty", "remove the empty list")
    if sum(jobs.values()) > MOST_JOBS:
        name = max(jobs, key=lambda name: jobs[name])
        rule = f"are {sum(jobs.values())} jobs, more than {MOST_JOBS}; {name} has {jobs[name]} of them"
        spot.error(NO_VALUE, rule, "shorten the lists of the sweeps, or lower iterations")


def _is_table(value: Any, spot: Spot) -> bool:
    if not isinstance(value, dict):
        spot.error(value, "must be a table", "write [[Tests]]")
    return isinstance(value, dict)


def _run(run: Mapping[str, Any], spot: Spot, lookup: _Nearest) -> TestRun | None:
    for name in _NOT_IN_RUNS:
        if name in run:
            spot.at(name).error(run[name], "is not a field of a test in a scenario", "write it into the test's file")
    known = {name: value for name, value in run.items() if name not in _NOT_IN_RUNS and name not in _RUN_TEST}
    own = read_table({name: key for name, key in RUN.items() if name not in _RUN_TEST}, known, spot)
    test = _test_of(run, own, spot, lookup)
    counts = own.get("num_nodes", ())
    if counts != () and own["nodes"]:
        spot.at("num_nodes").warn(counts, "is not used: nodes names them", "remove one of the two")
    if test is None:
        return None
    return TestRun(
        id=own.get("id", ""),
        test=test,
        counts=tuple(counts) if isinstance(counts, list) else (counts,) if counts != () else (),
        counts_swept=isinstance(counts, list),
        nodes=tuple(own["nodes"]),
        exclude_nodes=tuple(own["exclude_nodes"]),
        iterations=own["iterations"],
        time_limit_s=own.get("time_limit"),
        dependencies=tuple(
            Dependency(one["type"], one["id"]) for one in own["dependencies"] if {"type", "id"} <= set(one)
        ),
        srun_arguments=own.get("extra_srun_args", ""),
        sol=own.get("sol"),
        ideal_perf=own["ideal_perf"],
        weight=own["weight"],
    )


def _test_of(run: Mapping[str, Any], own: Mapping[str, Any], spot: Spot, lookup: _Nearest) -> TestDefinition | None:
    """Return the test of a run: a file's with the run's changes, or the one that is written in the scenario."""
    fields = {name: run[name] for name in _RUN_TEST if name in run}
    name = own.get("test_name")
    if name is None:
        return _inline(fields, spot, lookup) if "test_name" not in run else None
    if "test_template_name" in run:
        rule = "must not be given next to test_name, which names a test with a template"
        spot.at("test_template_name").error(run["test_template_name"], rule, "remove one of the two")
    candidates = lookup.find(name)
    if not candidates:
        hint = spot.remarks.did_you_mean(name, lookup.tests, "give the folder of its file: --tests-dir DIR")
        spot.at("test_name").error(name, "is not the name of a test that was read", hint)
    results = []
    for test in candidates:
        if test.template is None:
            rule = f"names a test of the template {test.fields['test_template_name']}, which is refused"
            spot.at("test_name").error(name, rule, f"see {test.file.path}")
            continue
        if not fields:  # most runs change nothing of their test, which has been checked
            results.append(definition(test.fields, test.template))
            continue
        changes = read_table({one: RUN[one] for one in _RUN_TEST}, fields, replace(spot, partial=True))
        if isinstance(fields.get("cmd_args"), dict):
            there = replace(spot.at("cmd_args"), partial=True)
            changes["cmd_args"] = read_table(test.template.arguments, fields["cmd_args"], there, test.template.others)
        elif "cmd_args" in fields:
            spot.at("cmd_args").error(fields["cmd_args"], "must be a table", "write [Tests.cmd_args]")
            del changes["cmd_args"]
        merged = _with_defaults(merge(test.fields, changes), test, test.template, spot)
        _check_test({**changes, "cmd_args": changes.get("cmd_args", {})}, test.template, spot)
        results.append(definition(merged, test.template))
    return results[0] if results and candidates[0].sound else None


def _with_defaults(fields: Mapping[str, Any], test: LoadedTest, template: Template, spot: Spot) -> dict[str, Any]:
    """Return the fields with the defaults of tables that only the run has, and report what such a table lacks."""
    merged = Remarks()
    there = replace(spot, remarks=merged)
    result = read_table({**TEST, **template.fields}, fields, there)
    result["cmd_args"] = _arguments(template, fields.get("cmd_args", {}), there)
    for remark in merged.errors if test.sound else ():
        spot.remarks.add(remark)
    return result


def _inline(fields: Mapping[str, Any], spot: Spot, lookup: _Nearest) -> TestDefinition | None:
    missing = [name for name in ("name", "description", "test_template_name") if name not in fields]
    if missing:
        rule = f"has no test_name, and of a test that is written here it lacks {', '.join(missing)}"
        spot.error(NO_VALUE, rule, "name a test with test_name, or write these fields")
        return None
    template = lookup.template(fields["test_template_name"], spot)
    return definition(_fields(template, fields, spot), template) if template else None


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return base with changes: tables are merged, everything else is replaced."""
    merged = dict(base)
    for name, value in changes.items():
        before = merged.get(name)
        merged[name] = merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def definition(fields: Mapping[str, Any], template: Template | None) -> TestDefinition:
    """Return a test from its fields, which have been checked."""
    own = {"own": template.own} if template and template.own else {}
    nsys = fields.get("nsys")
    return TestDefinition(
        name=fields.get("name", ""),
        description=fields.get("description", ""),
        template=fields.get("test_template_name", ""),
        arguments=fields.get("cmd_args", {}),
        environment=fields.get("extra_env_vars", {}),
        options=fields.get("extra_cmd_args", {}),
        mounts=tuple(fields.get("extra_container_mounts", ())),
        repositories=tuple(fields.get("git_repos", ())),
        nsys=nsys if nsys is not None and nsys is not INVALID and nsys.get("enable", True) else None,
        literal=tuple(fields.get("dse_excluded_args", ())),
        other={**{name: value for name, value in fields.items() if name not in _OF_DEFINITION}, **own},
    )
