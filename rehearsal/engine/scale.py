"""The scale of a rehearsal: what the local hosts' acceptance measures instead of what EFA and GPUs would.

The head node gets these values as `/etc/slipway/acceptance-site.json`; everything else of the scenario stays as the
settings made it. So every settings file can be rehearsed, and says on AWS what it says there.
"""

from __future__ import annotations

import json
from typing import Any

from rehearsal.hosts.fleet import LINK_RATE_MBIT

SITE_FILE = "/etc/slipway/acceptance-site.json"
MIN_BYTES = 1 << 20
ALLTOALL_BYTES = 1 << 18
MAX_BYTES = 8 << 20  # a link of 0.025 GB/s carries this twice, as an all_reduce does, in about 0.7 s
LINK_GB_PER_S = LINK_RATE_MBIT / 8 / 1000
FAIL_SHARE = 0.25
"""Of the link's rate: a throttled host brings a ring to 20 % at most, whatever the machine; a ring of healthy hosts
reaches 75 % on two CPUs and 32 % on half a CPU."""
WARN_SHARE = 0.40
TEST_TIMEOUT_S = 90
QUEUE_TIMEOUT_S = 60
STARTING_QUEUE_TIMEOUT_S = 180  # where dynamic nodes have to start first; Slurm looks every 30 s whether they are there
PAIR_TIMEOUT_S = 30
SOURCE = f"rehearsal: the local hosts' links are shaped to {LINK_RATE_MBIT / 1000:g} Gbit/s = {LINK_GB_PER_S:.3f} GB/s"
DATE = "2026-11-27"


def site_values(nodes: int, *, starts_nodes: bool = False) -> dict[str, Any]:
    """The site file's content for a scenario on `nodes` local hosts. Bandwidths in GB/s, sizes in bytes.

    `starts_nodes`: some of them are dynamic.
    """
    fail_below, warn_below = round(LINK_GB_PER_S * FAIL_SHARE, 4), round(LINK_GB_PER_S * WARN_SHARE, 4)
    return {
        "nodes": nodes,
        "network": None,  # there is no EFA whose provider or number of NICs could be looked at
        "suite": None,  # there is no GPU, and /fsx is the machine's memory; `left_out` says so
        "each_test": {
            "min_bytes": MIN_BYTES,
            "max_bytes": MAX_BYTES,
            "iterations": 1,
            "warmup_iterations": 1,
            "timeout_s": TEST_TIMEOUT_S,
        },
        # Sixteen times less than the all_reduce: of each rank's buffer three quarters cross the links of four hosts.
        "test": {"alltoall": {"min_bytes": ALLTOALL_BYTES, "max_bytes": ALLTOALL_BYTES}},
        "limits": [
            {
                "collective": "all_reduce",
                "nodes": nodes,
                "size_bytes": MAX_BYTES,
                "fail_below_gb_per_s": fail_below,
                "warn_below_gb_per_s": warn_below,
                "source": f"{SOURCE}, {FAIL_SHARE:.0%} of it",
                "date": DATE,
            }
        ],
        "locate": {
            "size_bytes": MAX_BYTES // 4,
            "iterations": 1,
            "pair_timeout_s": PAIR_TIMEOUT_S,
            "pair_limit_gb_per_s": fail_below,
            "collectives": ["all_reduce"],  # the one whose limit is known for these links
        },
        "queue_timeout_s": STARTING_QUEUE_TIMEOUT_S if starts_nodes else QUEUE_TIMEOUT_S,
    }


def site_file(nodes: int, *, starts_nodes: bool = False) -> bytes:
    """The site file as it is put on the head node."""
    return (json.dumps(site_values(nodes, starts_nodes=starts_nodes), indent=1) + "\n").encode()
