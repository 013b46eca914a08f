"""The report as one self-contained HTML page."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from acceptance.jsonable import jsonable
from acceptance.report.gpus_page import gpus_values
from acceptance.report.heatmap import heat_maps
from acceptance.report.model import Report, ScenarioReport, TestReport
from acceptance.report.timeline import gantt, graph
from acceptance.text import gb_text, size_text

_PLOTLY = "plotly-basic.min.js"
# Of verdicts, in the pictures of a scenario.
_COLORS = {
    "pass": "#1a7f37",
    "no limit": "#1a7f37",
    "warn": "#8a5a00",
    "skipped": "#8b949e",
    "not run": "#8b949e",
    "unjudged": "#8a5a00",
    "fail": "#b3261e",
}
_PACKAGE = "plotly.js-basic-dist-min"


def render_page(report: Report) -> str:
    """Return the page. Without the plot library it says so and has the tables."""
    import markupsafe  # with jinja2, only where a page is written: they take a third of the start of `acceptance`

    template = _environment().get_template("page.html.j2")
    plots = [_plot(test) for test in report.tests if test.rows]
    library = _plotly() if plots else None
    values = {"plotly": library, "plots": script_json(plots), "has_plots": bool(plots), "maps": heat_maps(report)}
    section = markupsafe.Markup(render_scenario(report.scenario)) if report.scenario else ""  # noqa: S704 - escaped there
    gpus = gpus_values(report.gpus) if report.gpus else {}
    return str(template.render(r=report, bounds_of=_bounds, scenario_section=section, **values, gpus=gpus))


def render_scenario(scenario: ScenarioReport) -> str:
    """Return the section about a scenario: its tests, dependency graph, Gantt and sweeps."""
    values = {"graph": graph(scenario), "gantt": gantt(scenario), "colors": _COLORS}
    return str(_environment().get_template("scenario.html.j2").render(s=scenario, **values))


def _environment() -> Any:
    """Return the `jinja2.Environment` that the pages' templates are rendered with; they may include each other."""
    import jinja2

    loader = jinja2.FunctionLoader(lambda name: files("acceptance.report").joinpath(name).read_text("utf-8"))
    made = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    made.filters.update(size=size_text, gb=gb_text)
    return made


def script_json(value: Any) -> str:
    """JSON for a script element: it has no '<', so no text in it can end the element."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plot(test: TestReport) -> dict[str, Any]:
    sizes = [row.size for row in test.rows]
    plot = {
        "name": test.name,
        "sizes": sizes,
        "size_texts": [size_text(size) for size in sizes],
        "out_of_place": [row.measured_busbw_gb_per_s for row in test.rows],
        "in_place": [row.in_place_busbw_gb_per_s for row in test.rows],
        "limits": [check.limit for check in test.checks if check.limit],
        "baseline": [one for one in test.baseline if one.baseline.size_bytes in sizes],
        "references": [one for one in test.references if one.size_bytes in sizes],
    }
    return {key: jsonable(value) for key, value in plot.items()}


def _bounds(test: TestReport) -> dict[int, dict[str, float]]:
    """By size: the highest bounds, the baseline, and what others measured, in GB/s."""
    bounds: dict[int, dict[str, float]] = {}
    for check in test.checks:
        if check.limit:
            known = bounds.setdefault(check.limit.size_bytes, {})
            for name, value in (("fail", check.limit.fail_below_gb_per_s), ("warn", check.limit.warn_below_gb_per_s)):
                if value is not None:
                    known[name] = max(value, known.get(name, value))
    for site in test.baseline:
        bounds.setdefault(site.baseline.size_bytes, {})["baseline"] = site.baseline.median_gb_per_s
    for reference in test.references:
        bounds.setdefault(reference.size_bytes, {})["others"] = reference.gb_per_s
    return bounds


def _plotly() -> str | None:
    """The plot library's text: from the package, else from SLIPWAY_PLOTLY, else from the repository's node_modules."""
    inside = files("acceptance.report").joinpath(_PLOTLY)
    if inside.is_file():
        return _safe(inside.read_text("utf-8"))
    repository = Path(__file__).resolve().parents[2]
    for path in (os.environ.get("SLIPWAY_PLOTLY"), repository / "node_modules" / _PACKAGE / _PLOTLY):
        if path and Path(path).is_file():
            return _safe(Path(path).read_text("utf-8"))
    return None


def _safe(script: str) -> str:
    return script.replace("</script", "<\\/script")
