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
from acceptance.text import plural

_REASON_CHARACTERS = 200


def drain_bad_nodes(report: Report, slurm: Slurm, percent: int, say: Callable[[str], None]) -> None:
    """Drain each slow or failed node of a report, with the reason. A node that is drained or down is left alone.

    percent: share of the report's nodes that may be drained, one at least. Where
    more nodes are bad, a switch, a driver or a limit is the likely cause, and new instances would be slow as well.
    """
    bad = report.nodes_that_are("slow", "failed")
    most = max(1, len(report.nodes) * percent // 100)
    drained = 0
    for index, node in enumerate(bad):
        if drained == most:
            left = [one.name for one in bad[index:]]
            say(
                f"{', '.join(left)}: NOT drained: {plural(len(bad), 'node')} of {len(report.nodes)} are bad, and a run"
                f" drains at most {most} ({percent} %). Hint: look for a common cause first; to drain all the same:"
                f" scontrol update nodename={','.join(left)} state=drain reason=..., or a larger"
                " acceptance.drain_percent in the settings (locate.drain_percent in a scenario)"
            )
            return
        done, text = _drain(node, report, slurm)
        drained += done
        say(text)


def _drain(node: NodeReport, report: Report, slurm: Slurm) -> tuple[bool, str]:
    """Return whether the node was drained now, and what to print."""
    name = node.name
    try:
        now = next((one for one in slurm.nodes(report.partition) if one.name == name), None)
        if now is not None and now.trouble:
            why = f" ({now.reason})" if now.reason else ""
            return False, f"{name}: not drained: it is {now.trouble} already{why}"
        reason = " ".join(f"acceptance {report.run_id}: {node.verdict}: {node.evidence}".split())
        slurm.drain(name, reason[:_REASON_CHARACTERS])
    except ExternalError as fault:
        return False, f"{name}: NOT drained: {fault}. Hint: only root and Slurm's administrators may"
    return True, (
        f"{name}: drained: ParallelCluster replaces its instance once its jobs have ended; with "
        f"health.terminate_drained_nodes: false it stays, and when it is repaired: scontrol update nodename={name} "
        "state=resume"
    )
