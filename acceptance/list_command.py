"""`acceptance list`: the tests of a scenario, or the collectives, limits and names that are known."""

from __future__ import annotations

import argparse
import json
from typing import Any

from acceptance.cloudai.cli import LISTS, add_folders, list_names, list_runs, read_one_scenario
from acceptance.errors import EXIT_GOOD
from acceptance.limits import known_limits
from acceptance.options import path_of
from acceptance.scenario import COLLECTIVES, Scenario, load_scenario
from acceptance.scenario.runs import as_test_scenario
from acceptance.text import gb_text, plural, size_text


def add_list_command(commands: Any) -> None:
    """Add the command to the parser of `acceptance`."""
    listing = commands.add_parser("list", help="show the tests of a scenario, or the collectives and limits known")
    listing.add_argument("what", nargs="?", choices=LISTS, help="these names of CloudAI's")
    listing.add_argument("--scenario", type=path_of, metavar="FILE", help="an acceptance.json")
    listing.add_argument(
        "--test-scenario", type=path_of, metavar="FILE", help="a scenario of CloudAI, or an acceptance.json"
    )
    add_folders(listing)
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(do=_list)


def _list(arguments: argparse.Namespace) -> int:
    if arguments.what:
        list_names(arguments.what)
        return EXIT_GOOD
    if arguments.test_scenario:
        path = arguments.test_scenario
        in_json = path.suffix == ".json"
        read = read_one_scenario(path, arguments.tests_dir, arguments.hook_dir) if not in_json else None
        list_runs(read or as_test_scenario(load_scenario(path)), arguments.json)
        return EXIT_GOOD
    if arguments.scenario:
        _list_tests(load_scenario(arguments.scenario), arguments.json)
        return EXIT_GOOD
    if arguments.json:
        names = ("size_bytes", "fail_below_gb_per_s", "warn_below_gb_per_s", "basis", "source", "date")
        limits = [
            {
                "instance_type": limit.instance_type,
                "collective": limit.collective,
                "nodes": [limit.nodes_min, limit.nodes_max],
                **{name: getattr(limit, name) for name in names},
            }
            for limit in known_limits()
        ]
        print(json.dumps({"collectives": list(COLLECTIVES), "limits": limits}, indent=1))
        return EXIT_GOOD
    print(f"collectives: {', '.join(COLLECTIVES)}")
    for limit in known_limits():
        bounds = f"fail < {gb_text(limit.fail_below_gb_per_s)}, warn < {gb_text(limit.warn_below_gb_per_s)} GB/s"
        nodes = f"{limit.node_counts} node{'s' * (limit.nodes_max > 1)}"
        what = f"{limit.instance_type} {limit.collective} {nodes} {size_text(limit.size_bytes)}"
        print(f"{what}: {bounds}; {limit.basis}: {limit.source}")
    return EXIT_GOOD


def _list_tests(scenario: Scenario, as_json: bool) -> None:
    if as_json:
        tests = [{"name": test.name, "collective": test.collective, "sizes": test.sizes()} for test in scenario.tests]
        print(json.dumps({"tests": tests}, indent=1))
        return
    for test in scenario.tests:
        sizes = f"{size_text(test.min_bytes)} to {size_text(test.max_bytes)}"
        where = f"{test.collective} on {plural(scenario.nodes, 'node')}"
        print(f"{test.name}: {where}, {sizes}, {test.timeout_s} s at most")
