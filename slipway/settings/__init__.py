"""The settings: what one file says about a cluster, validated and frozen.

From bottom to top: `source` (text to data with the place of each key), `model` (the parts), `rules` (several keys
together), `faults` (pydantic's errors as faults).
"""

from slipway.settings.model import (
    PARALLELCLUSTER_VERSION,
    PRIVATE_RANGES,
    RESULTS_PREFIX,
    SIZE_UNITS,
    STAND_IN_ITEMS,
    STAND_INS,
    Association,
    Budget,
    Examination,
    Form,
    Fsx,
    ImageUri,
    Mount,
    Network,
    Observability,
    Queue,
    Script,
    Settings,
    Slurm,
    Storage,
    examine,
    examine_source,
    load_settings,
)

__all__ = [
    "PARALLELCLUSTER_VERSION",
    "PRIVATE_RANGES",
    "RESULTS_PREFIX",
    "SIZE_UNITS",
    "STAND_INS",
    "STAND_IN_ITEMS",
    "Association",
    "Budget",
    "Examination",
    "Form",
    "Fsx",
    "ImageUri",
    "Mount",
    "Network",
    "Observability",
    "Queue",
    "Script",
    "Settings",
    "Slurm",
    "Storage",
    "examine",
    "examine_source",
    "load_settings",
]
