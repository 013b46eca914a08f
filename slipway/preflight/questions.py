"""Every question that `slipway preflight` asks, in the order in which the answers are printed."""

from __future__ import annotations

from slipway.preflight import (
    account,
    bootstrap,
    bucket,
    database,
    ebs_key,
    filesystems,
    groups,
    machines,
    names,
    network,
    observability,
    permissions,
    price,
    quota,
    reservation,
    secrets,
    software,
)
from slipway.preflight.model import Question

QUESTIONS: tuple[Question, ...] = (
    *account.QUESTIONS,
    *bootstrap.QUESTIONS,
    *permissions.QUESTIONS,
    *names.QUESTIONS,
    *reservation.QUESTIONS,
    *machines.QUESTIONS,
    *ebs_key.QUESTIONS,
    *quota.QUESTIONS,
    *network.QUESTIONS,
    *groups.QUESTIONS,
    *bucket.QUESTIONS,
    *filesystems.QUESTIONS,
    *observability.QUESTIONS,
    *secrets.QUESTIONS,
    *database.QUESTIONS,
    *software.QUESTIONS,
    *price.QUESTIONS,
)
