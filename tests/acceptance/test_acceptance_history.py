"""The history: what is kept, the baselines and trends that come of it, and that nothing of it can cost a run its report."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from acceptance_runs import HERE, REPOSITORY, Finished, make_scenario
from recorded import GIB, idle, located, log_of, run_directory, sweep

from acceptance.cli import main
from acceptance.errors import ExternalError
from acceptance.history import known_baselines, metrics, remember, send_history, store, with_baselines
from acceptance.history.read import Kind, Point, bad_nodes, series
from acceptance.history.significance import LEAST, lowest_step, runs_needed
from acceptance.history.store import HistoryError, insert, reading, setup_text, writing
from acceptance.history.trend import compare, trends
from acceptance.report import Report, build_report, write_report
from acceptance.scenario import load_scenario, read_scenario

TOP = f"{4 * GIB}"


def stamp(number: int) -> str:
    """The start of the run of this number: one a day."""
    return f"2026-11-{number:02d}T06:00:00Z"


def run_id(number: int) -> str:
    return f"202611{number:02d}T060000Z-train"


class Site:
    """A directory of runs with a history, as a cluster's head node has it."""

    def __init__(self, root: Path) -> None:
        self.root, self.path, self.said = root, root / "history.sqlite", []  # type: ignore[var-annotated]

    def run(self, number: int, top: float, **changes: Any) -> Path:
        """Record a run that reached `top` GB/s at 4 GiB; accepted from 400 on by default."""
        values = {"run_id": run_id(number), "started": stamp(number), "text": log_of(sweep(top))}
        directory = run_directory(self.root, **{**values, **changes})
        remember(self.path, write_report(directory), self.said.append)
        return directory

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        with reading(self.path) as connection:
            return [tuple(row) for row in connection.execute(text)]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(metrics, "TEXTFILE_DIRECTORY", tmp_path / "no node exporter")
    return Site(tmp_path / "runs")


def test_a_run_is_kept_with_what_its_figures_depend_on(site: Site) -> None:
    site.run(1, 480.0)
    assert site.said == []
    ((cluster, name, started, kind, nodes, gpus, setup, verdict),) = site.rows(
        "SELECT cluster, run_id, started, instance_type, nodes, gpus_per_node, setup, verdict FROM runs"
    )
    assert (cluster, name, started, kind) == ("ml", run_id(1), stamp(1), "p5.48xlarge")
    assert (nodes, gpus, setup, verdict) == (2, 8, "{}", "accepted")
    assert site.rows("SELECT size_bytes, busbw_gb_per_s, outcome, sound FROM measures ORDER BY size_bytes") == [
        (GIB, 451.2, "unjudged", 1),
        (2 * GIB, 456.0, "unjudged", 1),
        (4 * GIB, 480.0, "pass", 1),
    ]
    assert site.rows("SELECT name, verdict FROM nodes") == [("gpu-1", "good"), ("gpu-2", "good")]
    assert site.rows("PRAGMA journal_mode") == [("delete",)]  # a write-ahead log needs memory that hosts do not share
    assert site.rows("PRAGMA user_version") == [(len(store.MIGRATIONS),)]


def test_the_same_run_again_changes_nothing(site: Site) -> None:
    directory = site.run(1, 480.0)
    before = [site.rows(f"SELECT * FROM {name}") for name in ("runs", "measures", "nodes")]  # noqa: S608 - three names
    remember(site.path, build_report(directory), site.said.append)
    assert [site.rows(f"SELECT * FROM {name}") for name in ("runs", "measures", "nodes")] == before  # noqa: S608


def test_an_unsound_measurement_is_kept_but_never_counted(site: Site) -> None:
    text = log_of(sweep(480.0)).replace("values : 0 OK", "values : 3 FAILED")
    site.run(1, 480.0, text=text)
    assert {sound for (sound,) in site.rows("SELECT sound FROM measures")} == {0}
    with reading(site.path) as connection:
        assert series(connection) == {}


def scenario_of(directory: Path) -> Any:
    return load_scenario(directory / "scenario.json")


def test_three_good_runs_make_a_baseline(site: Site) -> None:
    scenario = scenario_of(site.run(1, 480.0))
    site.run(2, 484.0)
    assert known_baselines(site.path, scenario, site.said.append) == ()
    site.run(3, 481.0)
    found = {one.size_bytes: one for one in known_baselines(site.path, scenario, site.said.append)}
    assert set(found) == {GIB, 2 * GIB, 4 * GIB}
    top = found[4 * GIB]
    assert (top.median_gb_per_s, top.mad_gb_per_s, top.runs) == (481.0, 1.0, 3)
    assert (top.since, top.until) == (stamp(1), stamp(3))
    assert site.said == []


def test_only_good_runs_of_the_same_kind_make_a_baseline(site: Site) -> None:
    scenario = scenario_of(site.run(1, 480.0))
    site.run(2, 481.0)
    site.run(3, 300.0)  # failed
    site.run(4, 430.0)  # below warn_below: accepted, but no example
    site.run(5, 482.0, scenario={"environment": {"NCCL_ALGO": "Ring"}})
    site.run(6, 482.0, scenario={"container": {"image": "/fsx/containers/other.sqsh"}})
    site.run(7, 482.0, scenario={"instance_type": "p5e.48xlarge"})
    site.run(8, 482.0, interrupted="stopped by SIGTERM")
    assert known_baselines(site.path, scenario, site.said.append) == ()
    site.run(9, 482.0, scenario={"cluster": "its-successor"})  # the same site
    found = known_baselines(site.path, scenario, site.said.append)
    assert {one.runs for one in found} == {3}


def test_a_run_that_only_lacks_a_limit_counts_where_the_user_takes_that(site: Site) -> None:
    own = {"limits": [], "instance_type": "g4dn.metal"}
    for number in (1, 2, 3):
        scenario = scenario_of(site.run(number, 10.0, scenario=own))
    assert known_baselines(site.path, scenario, site.said.append) == ()
    for number in (4, 5, 6):
        site.run(number, 10.0, scenario={**own, "missing_limit": "warn"})
    assert len(known_baselines(site.path, scenario, site.said.append)) == 3


def another_run(report: Report, number: int, busbw: dict[int, float]) -> Report:
    """The same run once more, with these bandwidths in GB/s by size."""
    (test,) = report.tests
    rows = tuple(replace(row, measured_busbw_gb_per_s=busbw[row.size]) for row in test.rows)
    return replace(report, run_id=run_id(number), started=stamp(number), tests=(replace(test, rows=rows),))


def test_the_last_twenty_good_runs_count(site: Site) -> None:
    scenario = scenario_of(site.run(1, 480.0))
    report = build_report(site.root / run_id(1))
    with writing(site.path) as connection:
        for number in range(2, 26):
            insert(
                connection, another_run(report, number, dict.fromkeys(sweep(0), 450.0 + number)), setup_text(scenario)
            )
    found = known_baselines(site.path, scenario, site.said.append)
    assert {(one.runs, one.since, one.median_gb_per_s) for one in found} == {(20, stamp(6), 465.5)}


def test_a_run_is_judged_by_the_baseline_that_it_began_with(site: Site) -> None:
    for number in (1, 2, 3):
        scenario = scenario_of(site.run(number, 480.0))
    found = known_baselines(site.path, scenario, site.said.append)
    values = with_baselines(make_scenario(), found)
    directory = site.run(4, 440.0, scenario={"baselines": values["baselines"]})
    report = build_report(directory)
    assert report.as_json() == json.loads((directory / "report.json").read_text())
    assert report.verdict == "not accepted"
    words = "bandwidth against the baseline at 4 GiB: too slow: busbw=440 GB/s, expected >= 465.6"
    assert words in report.failures[0].what
    site.run(5, 100.0)
    assert build_report(directory) == report  # whatever the history says by now


def test_baselines_in_a_scenario_are_checked() -> None:
    faults: list[str] = []
    one = {"collective": "all_reduce", "nodes": 2, "size_bytes": GIB, "median_gb_per_s": "fast", "mad_gb_per_s": -1}
    read_scenario(
        make_scenario(baselines=[{**one, "runs": 0, "since": "soon", "until": stamp(1), "colour": 1}]), faults
    )
    places = {fault.split(" ")[0].rstrip(":") for fault in faults}
    assert places == {f"baselines[0].{key}" for key in ("median_gb_per_s", "mad_gb_per_s", "runs", "since", "colour")}


# Nothing of the history may cost a run its report.


def broken(path: Path, kind: str) -> None:
    """Make the history unusable in one of the ways that files are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "garbage":
        path.write_bytes(b"no database at all, but long enough to be taken for one" * 100)
    elif kind == "cut":
        path.write_bytes(path.read_bytes()[: 3 * 4096])
    elif kind == "directory":
        path.mkdir()
    elif kind == "newer":
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 99")
    elif kind == "foreign":
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 1")


WORDS = {
    "garbage": ("not a database", "--rebuild` puts it aside"),
    "cut": ("malformed", "--rebuild` puts it aside"),
    "directory": ("", ""),
    "newer": ("schema 99, this program knows", "use that one"),
    "foreign": ("no such table", "may this user write there?"),
}


@pytest.mark.parametrize("kind", WORDS)
def test_a_broken_history_is_said_and_the_report_is_whole(site: Site, kind: str) -> None:
    if kind == "cut":
        site.run(1, 480.0)
    broken(site.path, kind)
    directory = site.run(2, 481.0)
    assert json.loads((directory / "report.json").read_text())["verdict"] == "accepted"
    (said,) = site.said
    assert said.startswith("history not written, the report is whole without it: ")
    for words in WORDS[kind]:
        assert words in said
    if kind != "directory":  # which is found to be one when it is written
        assert known_baselines(site.path, scenario_of(directory), site.said.append) == ()
        assert site.said[-1].startswith("history not read, so there is no baseline: ")
    assert all("Traceback" not in one and "\n" not in one for one in site.said)


def test_a_locked_history_is_waited_for_and_then_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = site.run(1, 480.0)
    report = build_report(directory)
    monkeypatch.setattr(store, "BUSY_S", 0.1)
    other = sqlite3.connect(site.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    remember(site.path, report, site.said.append)
    assert known_baselines(site.path, scenario_of(directory), site.said.append) == ()
    other.execute("ROLLBACK")
    other.close()
    assert "database is locked. Hint: another run held it" in site.said[0]
    assert "database is locked" in site.said[1]
    monkeypatch.setattr(store, "BUSY_S", 30)
    held = threading.Event()

    def hold() -> None:
        late = sqlite3.connect(site.path, isolation_level=None)
        late.execute("BEGIN IMMEDIATE")
        held.set()
        time.sleep(0.3)
        late.execute("COMMIT")
        late.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    remember(site.path, report, site.said.append)
    thread.join()
    assert len(site.said) == 2  # this one was waited for


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
@pytest.mark.hosts
def test_a_full_disk_is_said(site: Site, tmp_path: Path) -> None:
    directory = run_directory(site.root)
    write_report(directory)
    full = tmp_path / "full"
    full.mkdir()
    code = (
        "import sys; from pathlib import Path; from acceptance.history import remember;"
        "from acceptance.report import build_report;"
        "remember(Path(sys.argv[2]) / 'h.sqlite', build_report(Path(sys.argv[1])), print)"
    )
    mount = 'mount -t tmpfs -o size=12k none "$1" && shift && exec "$@"'
    argv = ["unshare", "-m", "sh", "-c", mount, "sh", str(full), sys.executable, "-c", code, str(directory), str(full)]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("history not written, the report is whole without it: ")
    assert "full. Hint: free some space" in done.stdout


def test_a_directory_that_cannot_be_made(site: Site, tmp_path: Path) -> None:
    directory = run_directory(site.root)
    (tmp_path / "file").write_text("")
    remember(tmp_path / "file/below/history.sqlite", write_report(directory), site.said.append)
    assert "Not a directory" in site.said[0]


def test_twenty_writers_at_once(site: Site) -> None:
    directories = [run_directory(site.root, run_id=run_id(number), started=stamp(number)) for number in range(1, 21)]
    reports = [build_report(directory) for directory in directories]
    threads = [threading.Thread(target=remember, args=(site.path, one, site.said.append)) for one in reports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert site.said == []
    assert site.rows("SELECT COUNT(*) FROM runs") == [(20,)]


def test_a_writer_that_is_killed_leaves_the_history_as_it_was(site: Site) -> None:
    site.run(1, 480.0)
    report = build_report(run_directory(site.root, run_id=run_id(2), started=stamp(2)))
    scenario = scenario_of(site.root / run_id(2))

    class Killed(BaseException):
        pass

    def write() -> None:
        with writing(site.path) as connection:
            insert(connection, report, setup_text(scenario))
            raise Killed

    with pytest.raises(Killed):
        write()
    assert site.rows("SELECT run_id FROM runs") == [(run_id(1),)]


def test_an_older_schema_is_brought_up_to_date(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.run(1, 480.0)
    monkeypatch.setattr(store, "MIGRATIONS", (*store.MIGRATIONS, "ALTER TABLE nodes ADD COLUMN colour TEXT; SELECT 1"))
    assert site.rows("SELECT colour FROM nodes") == [(None,), (None,)]
    newest = len(store.MIGRATIONS)
    assert site.rows("PRAGMA user_version") == [(newest,)]
    monkeypatch.undo()
    known = rf"newer acceptance \(it has schema {newest}, this program knows {newest - 1}\)"
    with pytest.raises(ExternalError, match=known):
        site.rows("SELECT 1")


def test_rebuild_adds_what_is_missing_and_replaces_what_is_broken(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2):
        site.run(number, 480.0)
    (site.root / "half").mkdir()
    (site.root / "half/run.json").write_text("{")
    broken(site.path, "garbage")
    assert main(["history", "--output", str(site.root), "--rebuild"]) == 0
    shown = capsys.readouterr()
    assert f"{site.path}: 2 runs of {site.root}" in shown.out
    assert "half/scenario.json: No such file or directory" in shown.err
    (aside,) = site.root.glob("history.sqlite.corrupt-*")
    assert aside.read_bytes().startswith(b"no database")
    assert site.rows("SELECT COUNT(*) FROM runs") == [(2,)]
    shutil.rmtree(site.root / run_id(1))
    site.run(3, 482.0)
    assert main(["history", "--output", str(site.root), "--rebuild"]) == 0
    assert site.rows("SELECT COUNT(*) FROM runs") == [(3,)]  # a run whose directory is gone stays
    assert main(["history", "--output", str(site.root / "nowhere"), "--rebuild"]) == 2


def test_rebuild_leaves_a_locked_history_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.run(1, 480.0)
    monkeypatch.setattr(store, "BUSY_S", 0.1)
    other = sqlite3.connect(site.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert main(["history", "--output", str(site.root), "--rebuild"]) == 3
    other.close()
    assert list(site.root.glob("*.corrupt-*")) == []


# Significance.


def chance_by_hand(values: tuple[float, ...], later: int) -> float:
    """The chance by trying every choice of the later values, with mean ranks for ties."""
    ranks = [sum(one < value for one in values) + (sum(one == value for one in values) + 1) / 2 for value in values]
    sums = [sum(chosen) for chosen in itertools.combinations(ranks, later)]
    return sum(one <= sum(ranks[-later:]) for one in sums) / len(sums)


@pytest.mark.parametrize(
    "values", [(6, 5, 4, 3, 2, 1), (5, 5, 4, 1, 1, 2), (3, 1, 4, 2, 7, 6, 5), (7, 7, 7, 7, 2, 2, 2)]
)
def test_step_against_every_order(values: tuple[float, ...]) -> None:
    by_hand = cache(lambda order: min((chance_by_hand(order, n), n) for n in range(LEAST, len(order) - LEAST + 1)))
    chance, later = by_hand(values)
    orders = list(itertools.permutations(values))
    true = sum(by_hand(order)[0] <= chance for order in orders) / len(orders)
    found, p = lowest_step(values)
    assert found == later
    assert true <= p + 1e-12  # never more certain than it is
    assert p <= len(values) * true  # and not without use


def test_step_in_known_cases() -> None:
    assert lowest_step([4, 5, 6, 1, 2, 3]) == (3, pytest.approx(1 / 20))
    assert lowest_step([1, 2, 3, 4, 5, 6]) == (3, 1)
    assert lowest_step([5] * 9)[1] == 1
    values = [100.1, 100.6, 100.3, 100.5, 100.2, 90.3, 90.1, 90.5, 90.2, 90.4]
    later, p = lowest_step(values)
    assert later == 5
    assert 1 / 252 <= p <= 0.01  # one of 252 ways to choose five of ten, and what the other points add


def test_how_many_runs_it_takes() -> None:
    assert [runs_needed(alpha) for alpha in (0.05, 0.01, 0.005, 0.001)] == [6, 9, 10, 13]
    best = [1.0 + n / 100 for n in range(4)] + [0.1 + n / 100 for n in range(4)]
    assert lowest_step(best)[1] > 0.01  # eight are not enough


KIND = Kind("p5.48xlarge", 8, 2, "{}", "all_reduce", 4 * GIB)


def points(values: list[float], outcome: str = "pass") -> list[Point]:
    return [Point(run_id(n), stamp(n), value, outcome, outcome == "pass") for n, value in enumerate(values, 1)]


def healthy(count: int, seed: int = 3) -> list[float]:
    dice = random.Random(seed)  # noqa: S311 - makes figures
    return [round(480 * (1 + dice.gauss(0, 0.003)), 2) for _ in range(count)]


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        (healthy(3), "too few runs"),
        ([*healthy(4), 400, 401, 402, 403], "too few runs"),  # clear to see, but not yet more than chance could do
        (healthy(9), "steady"),
        ([*healthy(5), *[460 + n for n in range(5)]], "degraded"),
        ([*healthy(14), 460, 461, 462], "degraded"),
        ([*healthy(9), *[460 + n / 10 for n in range(15)]], "degraded"),  # and still is, 15 runs later
        ([*healthy(6), 460, 461, 480.1], "steady"),  # too little evidence
        ([*healthy(9), *[500 + n for n in range(6)]], "steady"),  # faster is no degradation
        ([480.0 + n / 100 for n in range(12)][::-1], "steady"),  # significant, but 0.02 %
        ([*[600.0] * 10, *healthy(24)], "steady"),  # what was long ago does not count
    ],
)
def test_trend(values: list[float], verdict: str) -> None:
    (trend,) = trends({KIND: points(values)})
    assert trend.step.verdict == verdict


def test_false_alarms_are_as_rare_as_said() -> None:
    alarms = 0
    for seed in range(400):
        found = {
            Kind("p5.48xlarge", 8, 2, "{}", "all_reduce", size * GIB): points(healthy(15, seed * 5 + size))
            for size in (1, 2, 4)
        }
        alarms += any(trend.step.verdict == "degraded" for trend in trends(found))
    assert alarms <= 400 * 0.01 + 6  # 4 are expected at most, whatever the change; 11 and more have p < 0.003


def test_a_trend_is_told_of_judged_sizes_and_the_largest() -> None:
    small = Kind("p5.48xlarge", 8, 2, "{}", "all_reduce", GIB)
    judged = Kind("p5.48xlarge", 8, 2, "{}", "all_reduce", 2 * GIB)
    found = {small: points([1.0], "unjudged"), judged: points([2.0]), KIND: points([3.0], "unjudged")}
    assert [trend.kind.size_bytes for trend in trends(found)] == [2 * GIB, 4 * GIB]
    assert trends({}) == []


def test_two_runs_are_held_against_what_single_runs_differ_by() -> None:
    values = [480.0, 481.0, 479.0, 470.0, 440.0]
    own = points(values)
    own[4] = Point(run_id(5), stamp(5), 440.0, "fail", False)
    (near,) = compare({KIND: own}, run_id(1), run_id(4))
    assert (near.verdict, near.known) == ("alike", True)
    assert near.noise == pytest.approx(3 * 2**0.5 * 4.795)  # 1 % of the good runs' median
    (far,) = compare({KIND: own}, run_id(1), run_id(5))
    assert (far.verdict, far.change) == ("slower", pytest.approx(-1 / 12))
    (back,) = compare({KIND: own}, run_id(5), run_id(1))
    assert back.verdict == "faster"
    (young,) = compare({KIND: own[:2]}, run_id(1), run_id(2))
    assert not young.known


def test_runs_with_other_variables_can_be_compared() -> None:
    ring = Kind("p5.48xlarge", 8, 2, '{"environment": {"NCCL_ALGO": "Ring"}}', "all_reduce", 4 * GIB)
    other = [Point(run_id(9), stamp(9), 360.0, "pass", True)]
    (one,) = compare({KIND: points([480.0]), ring: other}, run_id(1), run_id(9))
    assert (one.first, one.second, one.verdict) == (480.0, 360.0, "slower")


# The command.


@pytest.fixture
def degraded(site: Site) -> Site:
    """Nine healthy runs and four slower ones, the last of which named nodes."""
    report = build_report(site.root / site.run(1, 480.0).name)
    scenario = scenario_of(site.root / run_id(1))
    levels = [*healthy(9), 440.0, 441.0, 442.0]
    with writing(site.path) as connection:
        for number, level in enumerate(levels, 1):
            insert(
                connection,
                another_run(report, number, {**dict.fromkeys(sweep(0), level * 0.95), 4 * GIB: level}),
                setup_text(scenario),
            )
    names = [f"gpu-{number}" for number in range(1, 9)]
    site.run(13, 390.0, locate=located(names, slow="gpu-3", hanging="gpu-6"), nodes=idle(names))
    return site


def test_history_tells_the_trend(degraded: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--output", str(degraded.root)]) == 1
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].split()[:2] == ["RUN", "STARTED"]
    assert lines[1].startswith(f"{run_id(13)}  {stamp(13)}  ml")
    (line,) = [line for line in lines if line.startswith("all_reduce 4 GiB, 2 nodes p5.48xlarge")]
    assert line.split()[-1] == "degraded"
    assert f"degraded since run {run_id(10)} ({stamp(10)}): 440.5 GB/s, before " in out
    assert [line.split()[:3] for line in lines if line.startswith("gpu-")] == [
        ["gpu-3", "slow", "1"],
        ["gpu-6", "failed", "1"],
    ]
    assert max(map(len, lines)) < 240


def test_history_as_json(degraded: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--history", str(degraded.path), "--json", "--last", "5"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert [run["run_id"] for run in shown["runs"]] == [run_id(number) for number in (13, 12, 11, 10, 9)]
    assert shown["runs"][0]["verdict"] == "not accepted"
    (one,) = shown["series"]
    assert (one["verdict"], one["size_bytes"], len(one["points"]), one["later_runs"]) == ("degraded", 4 * GIB, 13, 4)
    assert one["p"] <= 0.01
    assert one["change"] == pytest.approx(440.5 / 480 - 1, abs=0.01)
    assert one["baseline"]["runs"] == 12  # the thirteenth failed


def test_history_of_one_cluster(degraded: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--history", str(degraded.path), "--cluster", "another", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["runs"], shown["series"], shown["bad_nodes"]) == ([], [], [])
    assert main(["history", "--history", str(degraded.path), "--cluster", "another"]) == 0


def test_history_compares_two_runs(degraded: Site, capsys: pytest.CaptureFixture[str]) -> None:
    pair = ["--compare", run_id(2), run_id(13)]
    assert main(["history", "--history", str(degraded.path), *pair]) == 1
    out = capsys.readouterr().out
    assert f"first: {run_id(2)}\nsecond: {run_id(13)}\n" in out
    assert [line.split()[-1] for line in out.splitlines() if line.startswith("all_reduce")] == ["slower"] * 3
    assert main(["history", "--history", str(degraded.path), "--compare", run_id(2), run_id(3), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {one["verdict"] for one in shown["differences"]} == {"alike"}


def test_wrong_use_is_told_all_at_once(degraded: Site, capsys: pytest.CaptureFixture[str]) -> None:
    history = ["history", "--history", str(degraded.path)]
    assert main([*history, "--compare", "20261101T060000Z-trian", "zzz"]) == 2
    err = capsys.readouterr().err
    assert f"is not a run of the history. Hint: did you mean {run_id(1)}?" in err
    assert "--compare zzz: is not a run of the history. Hint: `acceptance history` lists them" in err
    assert main([*history, "--last", "0"]) == 2
    assert main(["history", "--output", str(degraded.root / "nowhere")]) == 2
    assert "there is no history. Hint: give --output or --history" in capsys.readouterr().err
    broken(degraded.path, "garbage")
    assert main(history) == 3
    assert "puts it aside and makes it again" in capsys.readouterr().err


def test_runs_with_nothing_in_common(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.run(1, 480.0)
    site.run(2, 480.0, scenario={"instance_type": "p5e.48xlarge"})
    assert main(["history", "--history", str(site.path), "--compare", run_id(1), run_id(2)]) == 2
    assert "have no sound measurement in common" in capsys.readouterr().err


def test_words_of_others_cannot_act_on_the_terminal(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.run(
        1, 480.0, nodes={"\x1b[2J": {"state": "DOWN", "trouble": "down", "reason": "x"}}, infrastructure="\x1b[31m"
    )
    assert main(["history", "--history", str(site.path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


# Where it goes.


def test_metrics_for_the_node_exporter(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "textfile"
    folder.mkdir()
    monkeypatch.setattr(metrics, "TEXTFILE_DIRECTORY", folder)
    names = [f"gpu-{number}" for number in range(1, 9)]
    baseline = {
        "collective": "all_reduce",
        "nodes": 2,
        "size_bytes": 4 * GIB,
        "median_gb_per_s": 480,
        "mad_gb_per_s": 1,
    }
    baseline |= {"runs": 3, "since": stamp(1), "until": stamp(3)}
    locate = located(names, slow="gpu-3", hanging="gpu-6")
    site.run(4, 390.0, locate=locate, nodes=idle(names), scenario={"baselines": [baseline]})
    assert site.said == []
    (file,) = folder.iterdir()
    assert file.name == "slipway_acceptance.prom"
    assert file.stat().st_mode & 0o777 == 0o644
    text = file.read_text()
    common = 'cluster="ml"'
    size = f'{common},collective="all_reduce",partition="train",size_bytes="{TOP}",test="all_reduce"'
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert samples[f'slipway_acceptance_accepted{{{common},partition="train"}}'] == "0"
    assert samples[f"slipway_acceptance_bus_bandwidth_bytes_per_second{{{size}}}"] == "3.9e+11"
    assert samples[f"slipway_acceptance_fail_below_bytes_per_second{{{size}}}"] == "4.512e+11"
    assert samples[f"slipway_acceptance_baseline_bytes_per_second{{{size}}}"] == "4.8e+11"
    assert samples[f'slipway_acceptance_nodes{{{common},partition="train",verdict="slow"}}'] == "1"
    assert samples[f'slipway_acceptance_node_bad{{{common},node="gpu-6",partition="train",verdict="failed"}}'] == "1"
    assert samples[f'slipway_acceptance_finished_timestamp_seconds{{{common},partition="train"}}'] == "1795813220"
    assert not [name for name in samples if f'"{GIB}"' in name]  # judged sizes and the largest only


def test_hostile_names_in_metrics(site: Site) -> None:
    report = build_report(
        run_directory(site.root, nodes={'a"\\\nb': {"state": "DOWN", "trouble": "down", "reason": ""}})
    )
    text = metrics.render_metrics(report)
    assert 'node="a\\"\\\\\\nb"' in text
    if shutil.which("promtool"):
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_metrics_that_cannot_be_written_are_said(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "textfile"
    (folder / metrics.FILE).mkdir(parents=True)
    monkeypatch.setattr(metrics, "TEXTFILE_DIRECTORY", folder)
    site.run(1, 480.0)
    (said,) = site.said
    assert said.startswith("metrics not written: ")
    assert [path.name for path in folder.iterdir()] == [metrics.FILE]
    assert site.rows("SELECT COUNT(*) FROM runs") == [(1,)]


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A stand-in of the AWS CLI that copies into a directory and notes its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "aws"
    program.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$*" >>"$(dirname "$0")/calls"\n'
        '[ -z "$AWS_FAILS" ] || { echo denied >&2; exit 1; }\nfor source; do last2=$last; last=$source; done\n'
        'cp "$last2" "$(dirname "$0")/copied"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return lambda: (folder / "calls").read_text().splitlines()


def test_a_snapshot_goes_to_s3(
    site: Site, tmp_path: Path, aws: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    site.run(1, 480.0)
    send_history(site.path, "ml", "s3://results/acceptance/", site.said.append)
    assert site.said == ["uploaded: s3://results/acceptance/history-ml.sqlite"]
    (call,) = aws()
    assert call.startswith("s3 cp --only-show-errors /")
    with sqlite3.connect(tmp_path / "bin/copied") as copy:
        assert copy.execute("SELECT run_id FROM runs").fetchall() == [(run_id(1),)]
    assert list(temporary.iterdir()) == []


def test_a_history_that_cannot_be_sent_is_said(
    site: Site, aws: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    send_history(site.path, "ml", "s3://results/", site.said.append)
    site.run(1, 480.0)
    monkeypatch.setenv("AWS_FAILS", "1")
    send_history(site.path, "ml", "s3://results/", site.said.append)
    assert "there is no history" in site.said[0]
    assert site.said[1].startswith("history not uploaded: aws s3 cp to s3://results/history-ml.sqlite: exit 1: denied")


@pytest.mark.hosts
def test_the_fourth_run_is_held_against_the_three_before(accept: Callable[..., Finished], tmp_path: Path) -> None:
    scenario = make_scenario(locate={"enabled": False})
    for _ in range(3):
        assert accept(scenario).code == 0
    slower = tmp_path / "slower"
    slower.mkdir()
    program = (HERE / "program/all_reduce_perf").read_text()
    assert "algbw=50 " in program
    (slower / "all_reduce_perf").write_text(program.replace("algbw=50 ", "algbw=45 "))
    (slower / "all_reduce_perf").chmod(0o755)
    (slower / "aws").write_text('#!/bin/sh\necho "$*" >>"$(dirname "$0")/calls"\n')
    (slower / "aws").chmod(0o755)
    path = {"PATH": f"{slower}:{os.environ['PATH']}"}
    upload = ("--upload", "s3://results-bucket/acceptance/")
    done = accept({**scenario, "nccl_tests_paths": [str(slower)]}, *upload, env=path)
    assert done.code == 1, done.out + done.err
    (test,) = done.report["tests"]
    outcomes = {check["name"]: check["outcome"] for check in test["checks"] if check["limit"]}
    assert outcomes == {"bandwidth at 16 MiB": "pass", "bandwidth against the baseline at 16 MiB": "fail"}
    assert [one["runs"] for one in test["baseline"]] == [3] * 5
    last = done.out.rstrip().splitlines()[-1]
    assert last == (
        "[RESULT] FAILURE: all_reduce: bandwidth against the baseline at 16 MiB is 78.75 GB/s, fail below 82.25"
    )
    calls = (slower / "calls").read_text().splitlines()
    assert [call.split()[-1].rsplit("/", 1)[1] for call in calls] == ["", "history-loopback.sqlite"]
    with reading(tmp_path / "runs/history.sqlite") as connection:
        verdicts = [row["verdict"] for row in connection.execute("SELECT verdict FROM runs ORDER BY started, run_id")]
    assert verdicts == ["accepted"] * 3 + ["not accepted"]


def test_bad_nodes_are_remembered(degraded: Site) -> None:
    with reading(degraded.path) as connection:
        assert [(one["name"], one["verdict"], one["last"]) for one in bad_nodes(connection, "ml")] == [
            ("gpu-3", "slow", stamp(13)),
            ("gpu-6", "failed", stamp(13)),
        ]


def test_a_fault_says_what_to_do() -> None:
    said = {
        "database or disk is full": "free some space",
        "locking protocol": "Lustre: flock",
        "attempt to write a readonly database": "may this user write there?",
    }
    for words, hint in said.items():
        assert hint in str(HistoryError(Path("/x"), sqlite3.OperationalError(words)))
