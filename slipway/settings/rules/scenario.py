"""Rules of the CloudAI scenario that `acceptance.scenario` names."""

from __future__ import annotations

from collections.abc import Iterator

from slipway.settings.model import Settings
from slipway.settings.rules.rule import COUNT_KEYS, Finding, rule, warning
from slipway.settings.scenario import UserScenario, on_cluster, read_user_scenario
from slipway.settings.scenario_fit import longest_s, misfits
from slipway.text import plural

PLACE = ("acceptance", "scenario")
SCENARIO_SHARE = 0.75
"""Of acceptance.timeout_minutes, for the jobs of a scenario: the build of nccl-tests may take 0.20 before."""


class _Read:
    """The scenario of the settings that were asked for last: the rules ask one after another, and it may be large."""

    settings: Settings | None = None
    scenario: UserScenario | None = None


def _scenario(s: Settings) -> UserScenario | None:
    if _Read.settings is not s:  # not equality: other settings may find another text in the same file
        _Read.settings, _Read.scenario = s, read_user_scenario(s)
    return _Read.scenario


@rule(
    why="The head node reads the scenario when the cluster is there and costs; here it is read by the same program.",
    source="docs/cloudai.md: `acceptance verify-configs` prints the same",
    keys=("acceptance.scenario",),
)
def scenario_file(s: Settings) -> Iterator[Finding]:
    scenario = _scenario(s)
    yield from ((PLACE, text, hint) for text, hint in (scenario.errors if scenario else ()))


@rule(
    why="Slurm refuses such a job, or holds it until acceptance.timeout_minutes are over.",
    source="man sbatch; ParallelCluster 3 names its nodes QUEUE-st-COMPUTE_RESOURCE-NUMBER",
    keys=(
        "acceptance.scenario",
        "queues.name",
        "queues.instance_type",
        *COUNT_KEYS,
        "containers.pyxis",
        "containers.format",
    ),
)
def scenario_fit(s: Settings) -> Iterator[Finding]:
    scenario = _scenario(s)
    if scenario and scenario.scenario and s.gpu_queue:
        yield from ((PLACE, text, hint) for text, hint in misfits(scenario.scenario, s, s.gpu_queue))


@warning(
    why="CloudAI's own program of today refuses its old fields; others do not mean what they seem to say.",
    source="docs/cloudai.md: `acceptance verify-configs` prints the same",
    keys=("acceptance.scenario",),
)
def scenario_remarks(s: Settings) -> Iterator[Finding]:
    scenario = _scenario(s)
    yield from ((PLACE, text, hint) for text, hint in (scenario.warnings if scenario else ()))


@warning(
    why="The jobs that are left when the time is over are cancelled, and acceptance fails.",
    source="Slipway: stacks/acceptance.py",
    keys=("acceptance.scenario", "acceptance.timeout_minutes"),
)
def scenario_time(s: Settings) -> Iterator[Finding]:
    scenario = _scenario(s)
    longest = longest_s(scenario.scenario) if scenario and scenario.scenario else 0
    minutes = s.acceptance.timeout_minutes * SCENARIO_SHARE
    if longest > minutes * 60:
        text = f"its time limits allow {plural(-(-longest // 60), 'minute')}, and its jobs have {minutes:.0f}"
        yield PLACE, text, "raise acceptance.timeout_minutes, of which jobs have three quarters, or lower the limits"


@warning(
    why="A fault in it shows when the cluster is there and costs.",
    source="Slipway: what is on the cluster cannot be read before it exists",
    keys=("acceptance.scenario",),
)
def scenario_on_cluster(s: Settings) -> Iterator[Finding]:
    if on_cluster(s):
        text = "is a file of the cluster, and is not checked here; without it acceptance fails"
        yield PLACE, text, "name a file next to the settings: it travels with the deployment"
