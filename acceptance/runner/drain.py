"""Draining the nodes that a run found bad, when it was asked to.

ParallelCluster replaces a drained static node within about a minute (clustermgtd.py of aws-parallelcluster-node,
terminate_drain_nodes), unless `health.terminate_drained_nodes` is false in the settings.
"""

from __future__ import annotations

from collections.abc import Callable

from acceptance.errors import ExternalError
from acceptance.report import Report
from acceptance.report.model import NodeReport
from acceptance.runner.slurm import Slurm

_REASON_CHARACTERS = 200


def drain_bad_nodes(report: Report, slurm: Slurm, say: Callable[[str], None]) -> None:
    """Drain each slow or failed node of a report, with the reason. One that is drained or down keeps what it has."""
    for node in report.nodes_that_are("slow", "failed"):
        say(_drain(node, report, slurm))


def _drain(node: NodeReport, report: Report, slurm: Slurm) -> str:
    name = node.name
    try:
        now = next((one for one in slurm.nodes(report.partition) if one.name == name), None)
        if now is not None and now.trouble:
            return f"{name}: not drained: it is {now.trouble} already" + (f" ({now.reason})" if now.reason else "")
        reason = " ".join(f"acceptance {report.run_id}: {node.verdict}: {node.evidence}".split())
        slurm.drain(name, reason[:_REASON_CHARACTERS])
    except ExternalError as fault:
        return f"{name}: NOT drained: {fault}. Hint: only root and Slurm's administrators may"
    return (
        f"{name}: drained: ParallelCluster replaces its instance once its jobs have ended; with "
        f"health.terminate_drained_nodes: false it stays, and when it is repaired: scontrol update nodename={name} "
        "state=resume"
    )
