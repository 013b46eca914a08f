"""Composition root: read the settings, make the stacks. `cdk deploy -c settings=clusters/NAME.yaml`."""

from __future__ import annotations

import gc
import sys

if __name__ == "__main__":
    gc.disable()  # a synthesis ends soon: looking for garbage took a seventh of its time

import slipway.jsii_environment  # noqa: F401 (before aws_cdk, which starts jsii when it is imported)

# isort: split
from aws_cdk import App, Environment, Tags

from slipway.errors import SlipwayError, error_lines
from slipway.settings import Settings, load_settings
from slipway.stack_names import stack_names
from stacks.acceptance import AcceptanceStack
from stacks.checks import add_checks
from stacks.cluster import ClusterStack
from stacks.identity import apply_site_rules
from stacks.network import NetworkStack
from stacks.observability import ObservabilityStack
from stacks.storage import StorageStack


def make_stacks(app: App, s: Settings) -> None:
    """The five stacks of one cluster; facts flow from the first to the last."""
    env = Environment(region=s.region)  # no account: it is the one that deploys, and synth looks nothing up
    names = stack_names(s.name)
    network = NetworkStack(app, names["network"], settings=s, env=env)
    storage = StorageStack(app, names["storage"], settings=s, network=network, env=env)
    observability = ObservabilityStack(app, names["observability"], settings=s, env=env)
    cluster = ClusterStack(
        app,
        names["cluster"],
        settings=s,
        network=network,
        storage=storage,
        observability=observability,
        env=env,
    )
    if s.acceptance.scenario != "none":
        AcceptanceStack(app, names["acceptance"], settings=s, cluster=cluster, storage=storage, env=env)
    for key, value in {**s.tags, "project": s.name}.items():
        Tags.of(app).add(key, value)
    apply_site_rules(app, s.iam)
    add_checks(app)


if __name__ == "__main__":
    app = App()
    try:
        make_stacks(app, load_settings(app.node.try_get_context("settings")))
    except SlipwayError as error:
        print(*error_lines(error), sep="\n", file=sys.stderr)
        sys.exit(error.exit_code)
    app.synth()
    gc.freeze()  # Python's end would look for garbage too
