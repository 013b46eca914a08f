"""Where the files that come with Slipway are: in the checkout, or in the installed package below `slipway/files`.

Both have the same layout: app.py, cdk.json, stacks/, nodes/, headnode/, compute/, gpusuite/, templates/ and
clusters/.
The rehearsal and the environments that `make` builds are in a checkout only.
"""

from __future__ import annotations

import shutil
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[1]  # the folder with the packages slipway and acceptance
CHECKOUT = None if (PACKAGES / "slipway/files").is_dir() else PACKAGES  # None when Slipway is installed from a wheel
FILES = CHECKOUT or PACKAGES / "slipway/files"

ACCEPTANCE = PACKAGES / "acceptance"
SCHEMA = FILES / "clusters/settings.schema.json"


def cdk() -> str:
    """The CDK CLI: the checkout's, else the first on PATH."""
    installed = FILES / "node_modules/.bin/cdk"
    return str(installed) if installed.is_file() else shutil.which("cdk") or "cdk"
