"""The page as a browser shows it: Chromium, without a window and without a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from acceptance_runs import REPOSITORY
from browser import CHROMIUM, Browser, Page
from recorded import GIB, located, log_of, run_directory, sweep
from suite_reports import ALL_REDUCE, STORAGE, of_eight, write_reports

from acceptance.report import suite_report, write_files, write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium")
LIBRARY = REPOSITORY / "node_modules/plotly.js-basic-dist-min/plotly-basic.min.js"
NAMES = [f"gpu-st-p5-{number}" for number in range(1, 9)]
WIDTHS = (1280, 390)
EVIL = "</script><img src=http://192.0.2.1/x onerror=alert(1)>" + "long" * 60


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


def write(root: Path, **changes: Any) -> str:
    """Write a report with everything in it; give the address of its page."""
    baselines = [
        {
            "collective": "all_reduce",
            "nodes": 2,
            "size_bytes": size * GIB,
            "median_gb_per_s": level,
            "mad_gb_per_s": 0.4,
        }
        | {"runs": 4, "since": "2026-11-01T00:00:00Z", "until": "2026-11-20T00:00:00Z"}
        for size, level in ((1, 437.0), (2, 444.0), (4, 466.0))
    ]
    values: dict[str, Any] = {
        "limit": {"fail_below_gb_per_s": 470, "warn_below_gb_per_s": 475},
        "scenario": {"baselines": baselines},
        "locate": located(NAMES, slow=NAMES[2], hanging=NAMES[5]),
        "nodes": {name: {"state": "IDLE", "trouble": None, "reason": None} for name in NAMES},
    }
    directory = run_directory(root, **{**values, **changes})
    write_report(directory)
    return (directory / "report.html").as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("page"))


def overflow(page: Page) -> int:
    """Pixels that the page is wider than the window."""
    return page.evaluate("document.scrollingElement.scrollWidth - document.documentElement.clientWidth")


@pytest.mark.skipif(not LIBRARY.is_file(), reason="needs the plot library of `npm ci`")
@pytest.mark.parametrize("width", WIDTHS)
def test_drawn_readable_and_quiet(browser: Browser, address: str, width: int) -> None:
    page = Page(browser, address, width)
    assert page.complaints == []
    assert page.requests == []
    assert overflow(page) <= 0
    # The plot: two lines with a point a size, bars of limits, the baseline's line, diamonds of others.
    assert page.evaluate("[...document.querySelectorAll('.plot .scatterlayer .trace')].length") == 6
    points = page.evaluate(
        "[...document.querySelectorAll('.plot .trace')].map(t => t.querySelectorAll('.points path').length)"
    )
    assert points == [3, 3, 2, 2, 3, 2]  # limit and baseline both bound 4 GiB
    legend = page.evaluate("[...document.querySelectorAll('.legendtext')].map(t => t.textContent)")
    assert legend == ["out of place", "in place", "fail below", "warn below", "baseline", "measured by others"]
    box = page.evaluate(
        "(r => [r.left, r.right, r.height])(document.querySelector('.plot svg').getBoundingClientRect())"
    )
    assert box[0] >= 0
    assert box[1] <= width
    assert box[2] >= 300


@pytest.mark.parametrize("width", WIDTHS)
def test_heat_map_names_its_pairs(browser: Browser, address: str, width: int) -> None:
    page = Page(browser, address, width)
    cells = page.evaluate(
        "[...document.querySelectorAll('svg.heat .pair')].map(g => [g.querySelector('title').textContent,"
        " g.querySelector('rect').getAttribute('fill'), g.querySelector('rect').hasAttribute('stroke'),"
        " g.querySelector('rect').getBoundingClientRect().width, (g.querySelector('text') || {}).textContent])"
    )
    assert len(cells) == 24
    by_title = {title: (fill, framed) for title, fill, framed, _, _ in cells}
    assert by_title["gpu-st-p5-3 + gpu-st-p5-4: round 2: 8.9 GB/s"] == ("#8c2d04", True)
    assert by_title["gpu-st-p5-5 + gpu-st-p5-6: round 2: hang"] == ("#2b2b2b", True)
    assert len({fill for fill, _ in by_title.values()}) == 3
    assert sum(framed for _, framed in by_title.values()) == 6
    assert all(wide >= 40 for _, _, _, wide, _ in cells)
    assert {text for *_, text in cells} > {"8.9", "✕"}


@pytest.mark.parametrize("width", WIDTHS)
def test_words_are_large_enough_and_can_be_reached(browser: Browser, address: str, width: int) -> None:
    page = Page(browser, address, width)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert overflow(page) <= 0
    sizes = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(e => [...e.childNodes].some(n => n.nodeType == 3"
        " && n.data.trim()) && !e.closest('script, .modebar')).map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12
    # What is wider than the window scrolls inside a box of its own; nothing is cut off.
    cut = page.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
        " && !e.closest('.scroll') && !e.closest('.plot')).map(e => e.outerHTML.slice(0, 80))"
    )
    assert cut == []


def test_accessible(browser: Browser, address: str) -> None:
    page = Page(browser, address, 1280)
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.evaluate("document.title") == "ml: not accepted (20261127T210000Z-train)"
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    assert page.evaluate("document.querySelectorAll('main').length") == 1
    loose = page.evaluate("[...document.querySelectorAll('th')].filter(h => !h.hasAttribute('scope')).length")
    assert loose == 0
    headless = page.evaluate("[...document.querySelectorAll('table')].filter(t => !t.querySelector('thead th')).length")
    assert headless == 0
    unnamed = page.evaluate(
        "[...document.querySelectorAll('[role=img]')].filter(e => !e.getAttribute('aria-label')"
        " && !document.getElementById(e.getAttribute('aria-labelledby'))).length"
    )
    assert unnamed == 0
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(h => +h.tagName[1])")
    assert all(after - before <= 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_names_change_nothing(browser: Browser, tmp_path: Path, width: int) -> None:
    nodes = {EVIL: {"state": "DOWN", "trouble": "down", "reason": EVIL}}
    limit = {"source": EVIL[:300], "fail_below_gb_per_s": 470, "warn_below_gb_per_s": None}
    page = Page(browser, write(tmp_path, nodes=nodes, limit=limit), width)
    assert page.complaints == []
    assert page.requests == []
    assert overflow(page) <= 0
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert EVIL in page.evaluate("document.querySelector('main').textContent")


def test_tables_tell_all_without_scripts(browser: Browser, tmp_path: Path) -> None:
    address = write(tmp_path, text=log_of(sweep(480.0)), locate=None)
    page = Page(browser, address, 390, scripts=False)
    cells = page.evaluate("[...document.querySelectorAll('details td')].map(c => c.textContent)")
    assert "480" in cells
    assert overflow(page) <= 0


def test_a_run_without_a_measurement_has_a_page(browser: Browser, tmp_path: Path) -> None:
    page = Page(browser, write(tmp_path, tests=[], locate=None, infrastructure="2 nodes are needed"), 390)
    assert page.complaints == []
    assert "There is no measurement to plot." in page.evaluate("document.body.textContent")
    assert json.loads(page.evaluate("JSON.stringify([...document.querySelectorAll('svg')].length)")) == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_gpu_suite(browser: Browser, tmp_path: Path, width: int) -> None:
    reports = write_reports(tmp_path / "reports", gpus=of_eight(), ddp=ALL_REDUCE, storage=STORAGE)
    write_files(suite_report(reports))
    page = Page(browser, (reports / "report.html").as_uri(), width)
    assert page.complaints == []
    assert page.requests == []
    assert overflow(page) <= 0
    bars = page.evaluate(
        "[...document.querySelectorAll('svg.bar')].filter(s => s.getAttribute('aria-label').includes('397.'))"
        ".map(s => [s.querySelector('rect').getAttribute('fill'), s.querySelector('rect').getBoundingClientRect().width])"
    )
    assert [fill for fill, _ in bars] == ["#b3261e"]
    assert 150 < bars[0][1] < 160  # 60 % of the longest bar's 260 pixels
    framed = (
        "[...document.querySelectorAll('svg.heat .pair')].filter(g => g.querySelector('rect').hasAttribute('stroke'))"
    )
    assert page.evaluate("document.querySelectorAll('svg.heat .pair').length") == 56
    assert page.evaluate(f"{framed}.map(g => g.querySelector('title').textContent)") == ["gpu 5 to gpu 6: 197 GB/s"]
    heights = page.evaluate(
        "[...document.querySelectorAll('svg.time polyline')].map(p => p.getBoundingClientRect().height)"
    )
    assert len(heights) == 3 * 8
    assert all(0 < height <= 70 for height in heights)
    assert page.evaluate("document.querySelectorAll('tr.storage').length") == 4
    sizes = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(e => [...e.childNodes].some(n => n.nodeType == 3"
        " && n.data.trim())).map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12
