"""The tests that run torch have an own environment: `make test-gpu-suite`."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("SLIPWAY_GPU_SUITE") else ["test_gpusuite_torch.py"]
