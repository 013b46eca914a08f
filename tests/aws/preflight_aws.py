"""The rehearsal's embedded AWS, with the operations that preflight and cost call and a rehearsal never does.

These are Service Quotas, the Price List, offers of capacity blocks, EBS's default key, Grafana's API, IAM's policy simulator and S3's
check of a bucket's owner. Chosen operations
can also be denied, delayed or throttled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rehearsal.cloud.seed import Seed
from rehearsal.cloud.server import EmbeddedAws
from tests.aws import grafana_api
from tests.aws.bad_day import BadDay, Misbehaviour
from tests.aws.block_offerings import install_block_offerings
from tests.aws.bucket_owner import install_owners
from tests.aws.ebs_key import install_ebs_key
from tests.aws.policy_simulator import install_simulation
from tests.aws.pricing import PriceList
from tests.aws.quotas import install_quotas, set_quota

# vCPU quotas of an account that trains; those of a new account do not let a single GPU run.
_QUOTAS = {
    "L-1216C47A": 1152.0,  # running on-demand standard instances
    "L-DB2E81BA": 768.0,  # ... of G and VT
    "L-417A185B": 3072.0,  # ... of P
    "L-34B43A08": 1152.0,  # standard spot instances
    "L-3819A6DF": 768.0,  # ... of G and VT
    "L-7212CCBC": 768.0,  # ... of P4 and older
    "L-C4BD4855": 768.0,  # ... of P5
}


class PreflightAws(EmbeddedAws):
    """An `EmbeddedAws` that also answers preflight's and cost's questions, and can misbehave."""

    def __init__(self, region: str, run_dir: Path, **options: Any) -> None:
        super().__init__(region, run_dir, **options)
        self.prices = PriceList()
        self._bad_day = BadDay()
        self.handlers = [self._bad_day.answer, *self.handlers, grafana_api.answer, self.prices.answer]

    def start(self) -> None:
        """Listen, with empty services."""
        install_quotas()
        install_ebs_key()
        install_simulation()
        install_owners()
        install_block_offerings()
        super().start()

    def stop(self) -> None:
        """Stop listening; safe to call twice."""
        self._bad_day.clear()
        super().stop()

    def misbehave(self, operation: str, **how: Any) -> Misbehaviour:
        """Treat an operation badly until the result is stopped; names and ways: see bad_day.py."""
        return self._bad_day.add(Misbehaviour(operation, **how))

    def reset(self) -> None:
        """An empty account that answers every request well."""
        self._bad_day.clear()
        self.prices.clear()
        super().reset()

    def seed(self, seed: Seed) -> None:
        """Make what is there before the deployment, and grant the quotas that training needs."""
        super().seed(seed)
        for code, value in _QUOTAS.items():
            set_quota(self.region, "ec2", code, value)
