"""Reading a scenario file. All faults are reported at once, each with place, value, rule and repair."""

from __future__ import annotations

import difflib
import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acceptance.errors import InputError
from acceptance.scenario.model import (
    COLLECTIVES,
    ROUND_OVERHEAD_S,
    Baseline,
    Container,
    FileSystem,
    Limit,
    LocateSettings,
    NetworkWanted,
    Scenario,
    ScenarioFile,
    SuiteWanted,
    Test,
)

_LARGEST_FILE = 4 << 20  # bytes
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PROVIDER = re.compile(r"[a-z][a-z0-9;_-]{0,31}")
_PATH = re.compile(r"/[A-Za-z0-9_./+-]{1,250}")
_IMAGE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_./:#@+-]{1,250}")
_IMAGE_FILE = re.compile(r"(/[A-Za-z0-9_.+-]+)+[.]sqsh")
_TOML = re.compile(r"/?[A-Za-z0-9_@+-][A-Za-z0-9_./@+-]{0,250}[.]toml")
_MOUNT = re.compile(r"/[A-Za-z0-9_./+-]{0,250}:/[A-Za-z0-9_./+-]{0,250}(?::[a-z,+-]{1,40})?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ABSENT: Any = object()


class _Reader:
    """One object of the file: hands out its values and collects the faults."""

    def __init__(self, value: Any, place: str, faults: list[str]) -> None:
        self.place, self.faults, self.known = place, faults, set[str]()
        self.value: dict[str, Any] = {}
        if isinstance(value, dict):
            self.value = value
        else:
            self.fault("", value, "must be an object", "write {...}")

    def fault(self, key: str, value: Any, rule: str, repair: str) -> None:
        place = ".".join(part for part in (self.place, key) if part) or "the file"
        shown = json.dumps(value, default=str)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        self.faults.append(f"{place} = {shown}: {rule}. Hint: {repair}")

    def take(self, key: str, default: Any = _ABSENT) -> Any:
        self.known.add(key)
        if key in self.value:
            return self.value[key]
        if default is _ABSENT and isinstance(self.value, dict):
            place = f"{self.place}.{key}" if self.place else key
            self.faults.append(f"{place}: is missing. Hint: add it")
        return default

    def whole(self, key: str, low: int, high: int, default: Any = _ABSENT) -> int:
        value = self.take(key, default)
        if value is _ABSENT:
            return low
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            rule = f"must be {low}" if low == high else f"must be a whole number from {low} to {high}"
            self.fault(key, value, rule, "correct the number")
            return low
        return value

    def number(self, key: str, low: float, high: float, default: Any = _ABSENT) -> Any:
        value = self.take(key, default)
        if value is _ABSENT:
            return low
        if value is None and default is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            self.fault(key, value, f"must be a number from {low} to {high}", "correct the number")
            return low
        return float(value)

    def text(self, key: str, pattern: re.Pattern[str], rule: str, default: Any = _ABSENT) -> str:
        value = self.take(key, default)
        if value is _ABSENT:
            return ""
        if not isinstance(value, str) or not pattern.fullmatch(value):
            self.fault(key, value, rule, "correct the text")
            return ""
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: Any = _ABSENT) -> str:
        value = self.take(key, default)
        if value is _ABSENT:
            return choices[0]
        if value not in choices:
            near = difflib.get_close_matches(str(value), choices, 1)
            self.fault(key, value, f"must be one of {', '.join(choices)}", _did_you_mean(near))
            return choices[0]
        return str(value)

    def each(self, key: str, read: Callable[[_Reader], Any], default: Any = _ABSENT) -> list[Any]:
        value = self.take(key, default)
        if value is _ABSENT:
            return []
        if not isinstance(value, list):
            self.fault(key, value, "must be a list", "write [...]")
            return []
        place = f"{self.place}.{key}" if self.place else key
        items = []
        for index, item in enumerate(value):
            reader = _Reader(item, f"{place}[{index}]", self.faults)
            if isinstance(item, dict):
                items.append(read(reader))
                reader.close()
        return items

    def close(self) -> None:
        """Report the keys that are not known."""
        for key in self.value:
            if key not in self.known:
                near = difflib.get_close_matches(key, self.known, 1)
                self.fault(key, self.value[key], "is not a key of this file", _did_you_mean(near))


def _did_you_mean(near: list[str]) -> str:
    return f"did you mean {near[0]}?" if near else "remove it"


def load_scenario(path: Path, site: Path | None = None) -> Scenario:
    """Read and check a scenario file, as the site file changes it. Raises InputError with every fault of either."""
    return check_scenario(read_values(path, site), f"{path} with {site}" if site else str(path))


def check_scenario(value: Any, where: str) -> Scenario:
    """Build a scenario from decoded JSON. where: what it was read from. Raises InputError with every fault."""
    faults: list[str] = []
    scenario = read_scenario(value, faults)
    if faults:
        raise InputError([f"{where}: {fault}" for fault in faults])
    return scenario


def load_own(directory: Path) -> Scenario:
    """Return the scenario of a run from its directory. Another user may own it, so a pipe in it is not waited for.

    Raises InputError if it does not exist or has faults.
    """
    path = directory / "scenario.json"
    if path.exists() and not path.is_file():
        raise InputError([f"{path}: is not a plain file. Hint: give the directory of a run"])
    return load_scenario(path)


def read_values(path: Path, site: Path | None = None) -> Any:
    """The scenario's JSON, decoded, with the site's values replacing those of the file.

    A site file is an object: `each_test` changes values of every test, `test` those of the tests it names, every
    other key takes the place of the scenario's. It is for what differs from the hardware that the scenario was written
    for.
    """
    value = _decode(path)
    if site is None:
        return value
    changes = _decode(site)
    if not isinstance(changes, dict) or not all(
        isinstance(changes.get(key, {}), dict) for key in ("each_test", "test")
    ):
        raise InputError([f"{site}: must be an object, its each_test and test too. Hint: write {{...}}"])
    if not isinstance(value, dict):
        return value
    each_test, named = changes.pop("each_test", {}), changes.pop("test", {})
    tests = value.get("tests")
    if isinstance(tests, list):
        tests = [
            {**test, **each_test, **named.get(str(test.get("name")), {})} if isinstance(test, dict) else test
            for test in tests
        ]
    return {**value, "tests": tests, **changes}


def search_values(value: Any, partition: str | None, collective: str | None) -> Any:
    """The values of a search alone: one test, which says what its pairs measure. None leaves a value as it is."""
    if not isinstance(value, dict) or not isinstance(value.get("tests"), list) or not value["tests"]:
        return value
    tests, locate = value["tests"], value.get("locate") or {}
    own = next((one for one in tests if isinstance(one, dict) and one.get("collective") == collective), tests[0])
    if collective and isinstance(own, dict):
        own = {**own, "name": collective, "collective": collective}
        locate = {**locate, "collectives": [collective]} if isinstance(locate, dict) else locate
    return {**value, "partition": partition or value.get("partition"), "tests": [own], "locate": locate}


def _decode(path: Path) -> Any:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError([f"{path}: is not a regular file. Hint: give the path of a scenario file"])
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            data = stream.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise InputError([f"{path}: {error.strerror or error}. Hint: give the path of a scenario file"]) from None
    if len(data) > _LARGEST_FILE:
        raise InputError([f"{path}: is larger than {_LARGEST_FILE} bytes. Hint: is it a scenario file?"])
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError([f"{path}: is not JSON: {error}. Hint: check it with `python3 -m json.tool {path}`"]) from None


def read_scenario(value: Any, faults: list[str]) -> Scenario:
    """Build a scenario from decoded JSON; add what is wrong with it to `faults`."""
    top = _Reader(value, "", faults)
    name_rule = "must be 1 to 64 letters, digits, '_', '.' or '-'"
    top.whole("schema", 1, 1)
    scenario = Scenario(
        cluster=top.text("cluster", _NAME, name_rule),
        partition=top.text("partition", _NAME, name_rule),
        instance_type=top.text("instance_type", _NAME, name_rule),
        nodes=top.whole("nodes", 1, 10_000),
        gpus_per_node=top.whole("gpus_per_node", 1, 64),
        network=_network(top, faults),
        tests=tuple(top.each("tests", _test)),
        limits=tuple(top.each("limits", _limit, [])),
        baselines=tuple(top.each("baselines", _baseline, [])),
        locate=_locate(top, faults),
        mpi=top.choice("mpi", ("pmix", "pmi2", "none"), "pmix"),
        container=_container(top, faults),
        gpu_image=_gpu_image(top),
        file_system=_file_system(top, faults),
        environment=_environment(top),
        nccl_tests_paths=_paths(top),
        queue_timeout_s=top.whole("queue_timeout_s", 1, 86_400, 600),
        node_wait_s=top.whole("node_wait_s", 0, 3_600, 30),
        missing_limit=top.choice("missing_limit", ("fail", "warn"), "fail"),
        test_scenario=_test_scenario(top, faults),
        suite=_suite(top, faults),
    )
    top.close()
    _across(scenario, top)
    return scenario


def _network(top: _Reader, faults: list[str]) -> NetworkWanted | None:
    value = top.take("network", None)
    if value is None:
        return None
    reader = _Reader(value, "network", faults)
    provider = reader.text("provider", _PROVIDER, "must be a libfabric provider's name, such as efa")
    nics = reader.take("nics", None)
    if nics is not None:
        nics = reader.whole("nics", 1, 1024)
    reader.close()
    return NetworkWanted(provider, nics)


def _test_scenario(top: _Reader, faults: list[str]) -> ScenarioFile | None:
    value = top.take("test_scenario", None)
    if value is None:
        return None
    reader, rule = _Reader(value, "test_scenario", faults), "must be the path of a TOML file"
    reader.take("sha256", None)  # of its files, for the record
    named = ScenarioFile(
        file=reader.text("file", _TOML, rule),
        system=reader.text("system", _TOML, rule),
        timeout_s=reader.whole("timeout_s", 1, 86_400),
    )
    reader.close()
    return named


def _suite(top: _Reader, faults: list[str]) -> SuiteWanted | None:
    value = top.take("suite", None)
    if value is None:
        return None
    reader, rule = _Reader(value, "suite", faults), "must be an absolute directory"
    quick = reader.take("quick", True)
    if not isinstance(quick, bool):
        reader.fault("quick", quick, "must be true or false", "write true or false")
    wanted = SuiteWanted(
        timeout_s=reader.whole("timeout_s", 1, 86_400),
        storage_timeout_s=reader.whole("storage_timeout_s", 1, 86_400),
        image_wait_s=reader.whole("image_wait_s", 0, 86_400, 0),
        quick=quick is True,
        storage_directory=reader.text("storage_directory", _PATH, rule, SuiteWanted.storage_directory),
        programs=reader.text("programs", _PATH, rule, SuiteWanted.programs),
    )
    reader.close()
    return wanted


def _file_system(top: _Reader, faults: list[str]) -> FileSystem | None:
    value = top.take("file_system", None)
    if value is None:
        return None
    reader, most = _Reader(value, "file_system", faults), 1e6
    found = FileSystem(
        mount=reader.text("mount", _PATH, "must be an absolute path"),
        write_gb_per_s=reader.number("write_gb_per_s", 0, most, None),
        read_gb_per_s=reader.number("read_gb_per_s", 0, most, None),
        burst_gb_per_s=reader.number("burst_gb_per_s", 0, most, None),
        client_gb_per_s=reader.number("client_gb_per_s", 0.001, most),
        source=reader.text("source", re.compile(r"[^\n]{1,400}"), "must say where the figures come from"),
    )
    reader.close()
    return found


def _gpu_image(top: _Reader) -> str | None:
    value = top.take("gpu_image", None)
    if value is None or (isinstance(value, str) and _IMAGE_FILE.fullmatch(value)):
        return value
    top.fault("gpu_image", value, "must be the file of an image", "write /fsx/containers/NAME.sqsh, or leave it out")
    return None


def _container(top: _Reader, faults: list[str]) -> Container | None:
    value = top.take("container", None)
    if value is None:
        return None
    reader = _Reader(value, "container", faults)
    image = reader.text("image", _IMAGE, "must be an image's file or address, such as /fsx/containers/x.sqsh")
    mounts = reader.take("mounts", [])
    if not isinstance(mounts, list) or not all(isinstance(one, str) and _MOUNT.fullmatch(one) for one in mounts):
        reader.fault("mounts", mounts, "must be a list of SOURCE:TARGET[:OPTIONS]", 'write ["/fsx:/fsx"]')
        mounts = []
    reader.close()
    return Container(image, tuple(mounts))


def _test(reader: _Reader) -> Test:
    return Test(
        name=reader.text("name", _NAME, "must be 1 to 64 letters, digits, '_', '.' or '-'"),
        collective=reader.choice("collective", COLLECTIVES),
        min_bytes=reader.whole("min_bytes", 1, 1 << 50),
        max_bytes=reader.whole("max_bytes", 1, 1 << 50),
        step_factor=reader.whole("step_factor", 2, 1024, 2),
        iterations=reader.whole("iterations", 1, 1_000_000, 20),
        warmup_iterations=reader.whole("warmup_iterations", 0, 1_000_000, 5),
        timeout_s=reader.whole("timeout_s", 1, 86_400),
        missing_limit=_missing_limit(reader),
    )


def _missing_limit(reader: _Reader) -> str | None:
    return reader.choice("missing_limit", ("fail", "warn"), "fail") if "missing_limit" in reader.value else None


def _limit(reader: _Reader) -> Limit:
    nodes = reader.whole("nodes", 1, 10_000)
    return Limit(
        collective=reader.choice("collective", COLLECTIVES),
        nodes_min=nodes,
        nodes_max=nodes,
        size_bytes=reader.whole("size_bytes", 1, 1 << 50),
        fail_below_gb_per_s=reader.number("fail_below_gb_per_s", 0, 1e6),
        warn_below_gb_per_s=reader.number("warn_below_gb_per_s", 0, 1e6, None),
        source=reader.text("source", re.compile(r"[^\n]{1,400}"), "must say where the number comes from"),
        date=reader.text("date", _DATE, "must be a date, YYYY-MM-DD"),
    )


def _baseline(reader: _Reader) -> Baseline:
    """One entry of `baselines`, which `acceptance run` writes into the scenario of its run directory."""
    text, rule = re.compile(r"[0-9T:Z-]{1,20}"), "must be a time in UTC"
    return Baseline(
        collective=reader.choice("collective", COLLECTIVES),
        nodes=reader.whole("nodes", 1, 10_000),
        size_bytes=reader.whole("size_bytes", 1, 1 << 50),
        median_gb_per_s=reader.number("median_gb_per_s", 0, 1e6),
        mad_gb_per_s=reader.number("mad_gb_per_s", 0, 1e6),
        runs=reader.whole("runs", 1, 1_000_000),
        since=reader.text("since", text, rule),
        until=reader.text("until", text, rule),
    )


def _locate(top: _Reader, faults: list[str]) -> LocateSettings:
    value = top.take("locate", None)
    if value is None:
        return LocateSettings()
    reader = _Reader(value, "locate", faults)
    enabled = reader.take("enabled", True)
    if not isinstance(enabled, bool):
        reader.fault("enabled", enabled, "must be true or false", "write true or false")
    size, max_rounds = reader.take("size_bytes", None), reader.whole("max_rounds", 1, 64, LocateSettings.max_rounds)
    pair_timeout_s = LocateSettings.pair_timeout_s
    if reader.take("budget_s", None) is not None:
        pair_timeout_s = max(1, reader.whole("budget_s", 1, 86_400) // max_rounds - ROUND_OVERHEAD_S)
    settings = LocateSettings(
        enabled=enabled is True,
        size_bytes=None if size is None else reader.whole("size_bytes", 1, 1 << 50),
        iterations=reader.whole("iterations", 1, 1_000_000, LocateSettings.iterations),
        warmup_iterations=reader.whole("warmup_iterations", 0, 1_000_000, LocateSettings.warmup_iterations),
        pair_timeout_s=reader.whole("pair_timeout_s", 1, 86_400, pair_timeout_s),
        max_rounds=max_rounds,
        factor=reader.number("factor", 0.1, 1.0, LocateSettings.factor),
        pair_limit_gb_per_s=reader.number("pair_limit_gb_per_s", 0, 1e6, None),
        collectives=_pair_collectives(reader),
        drain_percent=reader.whole("drain_percent", 1, 100, LocateSettings.drain_percent),
    )
    reader.close()
    return settings


def _pair_collectives(reader: _Reader) -> tuple[str, ...]:
    value = reader.take("collectives", [])
    if not isinstance(value, list) or any(one not in COLLECTIVES for one in value):
        reader.fault("collectives", value, f"must be a list of {', '.join(COLLECTIVES)}", 'write ["alltoall"]')
        return ()
    return tuple(value)


def _environment(top: _Reader) -> tuple[tuple[str, str], ...]:
    value = top.take("environment", {})
    if not isinstance(value, dict):
        top.fault("environment", value, "must be an object of names and texts", 'write {"NCCL_ALGO": "Ring"}')
        return ()
    for name, text in value.items():
        if not _VARIABLE.fullmatch(name):
            top.fault(f"environment.{name}", text, "must have a name of letters, digits and '_'", "rename it")
        elif not isinstance(text, str) or not re.fullmatch(r"[ -~]{0,512}", text):
            top.fault(f"environment.{name}", text, "must be a printable text of one line", "correct the text")
    return tuple(sorted((name, text) for name, text in value.items() if isinstance(text, str)))


def _paths(top: _Reader) -> tuple[str, ...]:
    value = top.take("nccl_tests_paths", [])
    if not isinstance(value, list) or not all(isinstance(path, str) and _PATH.fullmatch(path) for path in value):
        top.fault("nccl_tests_paths", value, "must be a list of absolute directories", "correct the paths")
        return ()
    return tuple(value)


def _across(scenario: Scenario, top: _Reader) -> None:
    """Check what concerns more than one value."""
    names = [test.name for test in scenario.tests]
    if not scenario.tests and "tests" in top.value and isinstance(top.value["tests"], list):
        top.fault("tests", top.value["tests"], "must hold at least one test", "add a test")
    for index, test in enumerate(scenario.tests):
        if names.index(test.name) != index:
            top.fault(f"tests[{index}].name", test.name, "is used twice", "give each test its own name")
        if test.max_bytes < test.min_bytes:
            top.fault(f"tests[{index}].max_bytes", test.max_bytes, "is below min_bytes", "raise it")
    for index, limit in enumerate(scenario.limits):
        swept = [t for t in scenario.tests if t.collective == limit.collective and t.min_bytes <= t.max_bytes]
        if limit.nodes_min == scenario.nodes and swept and all(limit.size_bytes not in t.sizes() for t in swept):
            rule = f"is not a size that the {limit.collective} test visits"
            top.fault(f"limits[{index}].size_bytes", limit.size_bytes, rule, f"nearest: {_near(limit, swept)}")
        if limit.warn_below_gb_per_s is not None and limit.warn_below_gb_per_s < limit.fail_below_gb_per_s:
            rule = "is below fail_below_gb_per_s"
            top.fault(f"limits[{index}].warn_below_gb_per_s", limit.warn_below_gb_per_s, rule, "raise it")


def _near(limit: Limit, tests: list[Test]) -> int:
    sizes = [size for test in tests for size in test.sizes()]
    return min(sizes, key=lambda size: abs(size - limit.size_bytes))
