"""How many samples the cluster sends to Amazon Managed Prometheus in a month: an estimate from counted exporters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipway.cost.model import HOURS_A_MONTH, Range
from slipway.instances import INSTANCE_TYPES, InstanceType

if TYPE_CHECKING:
    from slipway.settings import Settings

SCRAPE_INTERVAL_S = 15  # templates/prometheus.yml.j2

# Counted on 2026-11-28: node_exporter 1.5.0 with its default collectors gives 481 series without those of each CPU on a
# host with four network interfaces, and 13 more for each CPU; Prometheus 2.42 gives 293 of itself.
SERIES_A_NODE = 481
SERIES_A_VCPU = 13
SERIES_OF_PROMETHEUS = 293
SERIES_A_GPU = 19  # the fields of nodes/metrics/dcgm-counters.csv
SERIES_AN_EFA_DEVICE = 23  # docs/metrics.md: one port a device
SERIES_A_SCRAPE = 5  # up and the four scrape_* series that Prometheus adds for each target

METRICS_ASSUMPTION = (
    f"Prometheus: {SERIES_A_NODE} series a node, {SERIES_A_VCPU} a vCPU, {SERIES_A_GPU} a GPU,"
    f" {SERIES_AN_EFA_DEVICE} an EFA device, one sample every {SCRAPE_INTERVAL_S} s; the free samples of the account"
    " are used by this cluster alone"
)


def samples_a_month(settings: Settings) -> Range:
    """Samples sent in 730 hours, with the nodes that are always there and with all there can be."""
    head = _series(INSTANCE_TYPES[settings.head_node.instance_type]) + SERIES_OF_PROMETHEUS + SERIES_A_SCRAPE
    low = head + sum(queue.min_count * _series(queue.instance) for queue in settings.queues)
    high = head + sum(queue.max_count * _series(queue.instance) for queue in settings.queues)
    return Range(low, high).times(HOURS_A_MONTH * 3600 / SCRAPE_INTERVAL_S)


def _series(instance: InstanceType) -> int:
    """What the node exporter and, with GPUs, the GPU exporter of one node give."""
    node = SERIES_A_NODE + SERIES_A_VCPU * instance.vcpus + SERIES_A_SCRAPE
    node += SERIES_AN_EFA_DEVICE * instance.efa_interfaces
    return node + (SERIES_A_GPU * instance.gpus + SERIES_A_SCRAPE if instance.gpus else 0)
