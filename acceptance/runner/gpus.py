"""The first image: which test's job asks in it for the GPUs and runs nccl-tests in it, and what the answers say."""

from __future__ import annotations

import os
import re
from pathlib import Path

from acceptance.limits import Check
from acceptance.limits.soundness import sound
from acceptance.runner.files import open_plain, read_log
from acceptance.scenario.model import Scenario, Test
from acceptance.text import gb_text, plural, size_text

GPUS_TIMEOUT_S = 300  # unpacking a 20 GB image on each node takes one to two minutes
IMAGE_TIMEOUT_S = 300  # unpacking once more, and one size of nccl-tests
IMAGE_BYTES = 1 << 30
NAME, NCCL_NAME = "container", "nccl-tests in the container"
_MOUNTS = ("/fsx/nccl", "/opt/amazon")
# What is wrong with the image's NCCL on these nodes; anything else is a test that could not be done.
_UNSOUND = ("network", "data")
HINT = "Hint: see /var/log/slipway/16-gpu-containers.log on the node; try /fsx/scripts/check-containers.sh"
_ANSWER = re.compile(r"^gpus (\S+) (\d+)$", re.MULTILINE)
_REASON = re.compile(r"^.*(?:acceptance: no |\[ERROR\]|[Ee]rror|failed|not found|[Ii]nvalid MPI type).*$", re.MULTILINE)
_MOST = 65_536  # bytes of the answers: a line a node
_TEXT = 200  # characters of a quoted line


def gpu_image(scenario: Scenario, test: Test) -> str | None:
    """Return the image in which this test's job asks for the GPUs; only the first test's job does."""
    return scenario.gpu_image if scenario.tests and test.name == scenario.tests[0].name else None


def gpus_file(test: Test) -> str:
    """Return the name of the file with the answers, in the run's directory."""
    return f"{test.name}.containers"


def image_log(test: Test) -> str:
    """Return the name of the log of nccl-tests in the image, in the run's directory."""
    return f"{test.name}.container.out"


def container_seconds(scenario: Scenario, test: Test) -> int:
    """Return how long a test's job may take for the first image, after the measurement."""
    return GPUS_TIMEOUT_S + IMAGE_TIMEOUT_S if gpu_image(scenario, test) else 0


def image_values(scenario: Scenario, test: Test, directory: Path) -> dict[str, object]:
    """Return what the job script needs for the first image.

    The shared NCCL, and EFA and Open MPI, which its programs need, are mounted for an image without nccl-tests.
    """
    mounts = [str(directory), *(place for place in _MOUNTS if Path(place).is_dir())]
    return {
        "gpu_image": gpu_image(scenario, test),
        "gpus_file": gpus_file(test),
        "gpus_timeout_s": GPUS_TIMEOUT_S,
        "image_timeout_s": IMAGE_TIMEOUT_S,
        "image_log": image_log(test),
        "image_mount": ",".join(f"{place}:{place}" for place in mounts),
        "image_arguments": f"-b {IMAGE_BYTES} -e {IMAGE_BYTES} -g 1 -c 1",
    }


def judge_image(scenario: Scenario, test: Test, directory: Path) -> list[Check]:
    """Return the check of nccl-tests in the first image; none where it was not started.

    A wrong network or wrong data fails. An image without nccl-tests, or whose MPI does not fit, is a warning: what
    users run in it may need neither.
    """
    image, path = gpu_image(scenario, test), directory / image_log(test)
    if image is None or not path.exists():
        return []
    log = read_log(path)
    checks = sound(scenario, test, log, scenario.nodes * scenario.gpus_per_node)
    wrong = [check for check in checks if check.outcome == "fail"]
    unsound = next((check for check in wrong if check.name in _UNSOUND), None)
    if unsound and log.tables:
        return [Check(NCCL_NAME, "fail", f"in {image}: {unsound.message}. Hint: {path} has NCCL's log")]
    if wrong:
        message = f"nccl-tests did not measure in {image}: {_why(path) or wrong[0].message}. Hint: see {path}"
        return [Check(NCCL_NAME, "warn", message)]
    row = log.tables[0].rows[-1]
    speed = f"{gb_text(row.out_of_place.busbw)} GB/s at {size_text(row.size)}"
    return [Check(NCCL_NAME, "pass", f"{speed} in {image}, not judged")]


def _why(path: Path) -> str:
    """Return the first line of a log that says why nccl-tests did not run; empty without one."""
    try:
        with os.fdopen(open_plain(path), "r", encoding="utf-8", errors="replace") as stream:
            text = stream.read(_MOST)
    except OSError:
        return ""
    found = _REASON.search(text)
    return found[0].removeprefix("acceptance: ").partition(" Hint: ")[0].strip().rstrip(".")[:_TEXT] if found else ""


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
