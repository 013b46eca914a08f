"""`slipway cost`: what a cluster costs, with today's prices if AWS reports them."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path

from slipway.cost.estimate import estimate, needed_prices
from slipway.cost.prices import data_prices
from slipway.errors import EXIT_GOOD, EXIT_NO, UsageError
from slipway.settings import load_settings

MAX_HOURS = 24 * 366 * 10


def cost(file: Path, *, live: bool, as_json: bool, hours: float | None, profile: str | None = None) -> int:
    """Print the estimate of `file`; 1 when it is above the settings' budget, else 0.

    `live` asks AWS, otherwise no request is made. `hours` is how long a capacity block lasts where AWS does not
    say; `profile` is one of the AWS configuration. Raises SettingsError for a wrong file,
    UsageError for impossible hours and for a profile that is not there.
    """
    from slipway.aws.session import session_of
    from slipway.cost import live as aws
    from slipway.cost import report

    if hours is not None and not (math.isfinite(hours) and 0 < hours <= MAX_HOURS):
        raise UsageError(f"--hours {hours:g}: must be more than 0 and at most {MAX_HOURS}")
    settings = load_settings(file)
    session = session_of(profile, settings.region) if live and profile else None
    connect = functools.partial(aws.connect, session=session)
    answers = aws.ask(settings, needed_prices(settings), connect) if live else aws.LiveFacts()
    prices = {**data_prices(settings.region), **answers.prices}
    result = estimate(settings, prices, answers.reserved, hours)
    if as_json:
        table = report.as_dict(str(file), result, answers.why_not, answers.why_not_reserved, live)
        print(json.dumps(table, indent=2))
    else:
        report.show(result, answers.why_not, answers.why_not_reserved, live)
    return EXIT_NO if result.above_budget else EXIT_GOOD
