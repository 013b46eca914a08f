"""Bandwidth through the network cards: the share of their rate that a collective used, for any number of nodes. Pure.

With k nodes of g GPUs, n = k g, an all_reduce, all_gather or reduce_scatter moves at least busbw x (k-1)/(n-1) through
each GPU's share of its node's network cards, an alltoall g times that. Below 40 % of the share's rate separated each
bad sample from each good one in published results (ours; docs/acceptance.md): it finds what no baseline of always
slow runs does, such as half the cards missing.
"""

from __future__ import annotations

from acceptance.limits.data import NetworkCards
from acceptance.scenario.model import Limit
from acceptance.text import gb_text

LEAST_SHARE = 0.40
ONCE = ("all_reduce", "all_gather", "reduce_scatter")


def through_cards(collective: str, nodes: int, gpus_per_node: int) -> float | None:
    """GB/s through one GPU's share of the cards for each GB/s of bus bandwidth; None where it does not follow."""
    ranks = nodes * gpus_per_node
    if nodes < 2 or collective not in (*ONCE, "alltoall"):
        return None
    once = (nodes - 1) / (ranks - 1)
    return once * gpus_per_node if collective == "alltoall" else once


def network_limit(cards: NetworkCards, collective: str, nodes: int, gpus_per_node: int, size: int) -> Limit | None:
    """The bus bandwidth below which less than 40 % of the cards' rate was used; None where it does not follow."""
    factor = through_cards(collective, nodes, gpus_per_node)
    least_size = cards.from_size_bytes
    if factor is None or cards.gpus != gpus_per_node or least_size is None or size < least_size:
        return None
    least = f"{LEAST_SHARE * 100:.0f} % of the {gb_text(cards.gb_per_s)} GB/s"
    return Limit(
        collective=collective,
        nodes_min=nodes,
        nodes_max=nodes,
        size_bytes=size,
        fail_below_gb_per_s=LEAST_SHARE * cards.gb_per_s / factor,
        warn_below_gb_per_s=None,
        source=f"{least} that the network cards have for each GPU",
        date=cards.date,
        basis="derived",
    )
