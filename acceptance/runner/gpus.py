"""GPUs in a container: which test's job asks for them, and what its answers say."""

from __future__ import annotations

import os
import re
from pathlib import Path

from acceptance.limits import Check
from acceptance.runner.files import open_plain
from acceptance.scenario.model import Scenario, Test
from acceptance.text import plural

GPUS_TIMEOUT_S = 300  # unpacking a 20 GB image on each node takes one to two minutes
NAME = "container"
HINT = "Hint: see /var/log/slipway/16-gpu-containers.log on the node; try /fsx/scripts/check-containers.sh"
_ANSWER = re.compile(r"^gpus (\S+) (\d+)$", re.MULTILINE)
_MOST = 65_536  # bytes of the answers: a line a node
_TEXT = 200  # characters of a quoted line


def gpu_image(scenario: Scenario, test: Test) -> str | None:
    """Return the image in which this test's job asks for the GPUs; only the first test's job does."""
    return scenario.gpu_image if scenario.tests and test.name == scenario.tests[0].name else None


def gpus_file(test: Test) -> str:
    """Return the name of the file with the answers, in the run's directory."""
    return f"{test.name}.containers"


def judge_gpus(scenario: Scenario, test: Test, directory: Path) -> list[Check]:
    """Return the check of the GPUs in a container; none for a test whose job does not ask."""
    image = gpu_image(scenario, test)
    if image is None:
        return []
    try:
        with os.fdopen(open_plain(directory / gpus_file(test)), "r", encoding="utf-8", errors="replace") as stream:
            text = stream.read(_MOST)
    except OSError:
        return [Check(NAME, "fail", f"no node was asked for its GPUs in {image}: the job ended before. {HINT}")]
    if text == "absent\n":
        message = f"{image} is not imported yet: GPUs in containers were not tried. Hint: accept again when it is there"
        return [Check(NAME, "warn", message)]
    answers = {node: int(count) for node, count in _ANSWER.findall(text)}
    few = [f"{node} has {count}" for node, count in sorted(answers.items()) if count < scenario.gpus_per_node]
    wanted = plural(scenario.gpus_per_node, "GPU")
    if few:
        return [Check(NAME, "fail", f"in {image} {', '.join(few)} of {wanted}. {HINT}")]
    if len(answers) < scenario.nodes:
        said = next((line for line in text.splitlines() if re.search(r"\[ERROR\]|error|failed", line)), "")
        missing = f"{len(answers)} of {plural(scenario.nodes, 'node')} started {image}"
        return [Check(NAME, "fail", f"{missing}{': ' + said.strip()[:_TEXT] if said else ''}. {HINT}")]
    return [Check(NAME, "pass", f"{plural(len(answers), 'node')} with {wanted} each in {image}")]
