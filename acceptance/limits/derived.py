"""What is expected where no limit is known: a share of the rates of the network and of the GPU interconnect. Pure.

A ring moves its bus bandwidth through every link, so that a node's network rate R bounds all_reduce, all_gather and
reduce_scatter between nodes. In an alltoall each of n ranks sends (n - g) / n of its data to other nodes of g GPUs, so
that R (n - 1) / (g (n - g)) bounds it. In one node the rate at which a GPU sends to its neighbour is the bound.
docs/acceptance.md has the formula and the figures that the shares rest on.
"""

from __future__ import annotations

from acceptance.limits.card_bandwidth import ONCE, network_limit
from acceptance.limits.data import NetworkCards, Shares, expected_shares, network_cards, pcie_gb_per_s
from acceptance.scenario.model import Limit, Scenario
from acceptance.text import gb_text

BASIS = "derived"


def derived_limit(scenario: Scenario, collective: str, nodes: int, size: int) -> Limit | None:
    """Return the limit derived from the instance type's rates; None where they are unknown or say nothing."""
    cards = network_cards(scenario.instance_type)
    if cards is None or cards.gpus != scenario.gpus_per_node or collective not in (*ONCE, "alltoall"):
        return None
    shares = expected_shares(cards.nvlink_gb_per_s is not None)
    # Without EFA, NCCL's sockets use one network card: the rate of several cards says nothing.
    efa = scenario.network is not None and scenario.network.provider == "efa"
    if size < shares.from_size_bytes or nodes * cards.gpus < 2 or (nodes > 1 and cards.cards > 1 and not efa):
        return None
    least, source = _least(cards, shares, collective, nodes)
    warn = least * (shares.warn_factor or 0)
    through = network_limit(cards, collective, nodes, cards.gpus, size) if efa else None
    if through is not None and through.fail_below_gb_per_s > least:
        least, source = through.fail_below_gb_per_s, through.source
    return Limit(
        collective=collective,
        nodes_min=nodes,
        nodes_max=nodes,
        size_bytes=size,
        fail_below_gb_per_s=round(least, 4),
        warn_below_gb_per_s=round(warn, 4) if warn > least else None,
        source=source,
        date=cards.date,
        instance_type=scenario.instance_type,
        basis=BASIS,
    )


def network_bound(cards: NetworkCards, collective: str, nodes: int) -> float:
    """The bus bandwidth in GB/s that the network of `nodes` nodes lets through."""
    rate, ranks = cards.gb_per_s * cards.gpus, nodes * cards.gpus
    if collective == "alltoall":
        return rate / cards.gpus * (ranks - 1) / (ranks - cards.gpus)
    return rate


def _least(cards: NetworkCards, shares: Shares, collective: str, nodes: int) -> tuple[float, str]:
    """The lower of the two bounds, each times its share, and in words where it comes from."""
    bounds = []
    if cards.gpus > 1:
        link = "NVLink" if cards.nvlink_gb_per_s else "PCIe"
        rate = cards.nvlink_gb_per_s or pcie_gb_per_s()
        words = f"{shares.gpu_share:.0%} of the {gb_text(rate)} GB/s of a GPU's {link}"
        bounds.append((shares.gpu_share * rate, words))
    if nodes > 1:
        rate = network_bound(cards, collective, nodes)
        words = f"{shares.network_share:.0%} of the {gb_text(rate)} GB/s that the network lets through"
        bounds.append((shares.network_share * rate, words))
    return min(bounds)
