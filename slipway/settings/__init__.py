"""The settings: what one file says about a cluster, validated and frozen.

From bottom to top; a module imports only those above it in this list:

    source.py   text to data, with line and column of each key and value
    forms.py    the form of one value: pattern, message, example, why, source
    model.py    the parts; every key with its description, default and bounds
    scenario.py the CloudAI scenario that the settings name
    rules/      rules about several keys
    check.py    `load_settings`, `examine`: every fault at once
    bad.py      the bad file of each rule, which documentation and tests check
    write.py    the text of a settings file
    page.py     docs/settings.md and the JSON Schema
"""

from slipway.settings.check import Examination, examine, examine_source, load_settings
from slipway.settings.forms import PRIVATE_RANGES, SIZE_UNITS
from slipway.settings.model import (
    FSX_MOUNT,
    PARALLELCLUSTER_VERSION,
    RESULTS_PREFIX,
    Association,
    Budget,
    Fsx,
    Home,
    Iam,
    Mount,
    Network,
    Observability,
    Queue,
    Script,
    Settings,
    Slurm,
    Storage,
)

__all__ = [
    "FSX_MOUNT",
    "PARALLELCLUSTER_VERSION",
    "PRIVATE_RANGES",
    "RESULTS_PREFIX",
    "SIZE_UNITS",
    "Association",
    "Budget",
    "Examination",
    "Fsx",
    "Home",
    "Iam",
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
