"""What a cluster costs, before it costs anything.

`estimate(settings, prices)` is pure; `data_prices(region)` gives the prices of the dated data file, `live.ask`
those of the Price List API by the same keys; `command.cost` asks and shows.
"""

from slipway.cost.estimate import estimate, needed_prices
from slipway.cost.model import CostEstimate, Price, Reserved
from slipway.cost.prices import data_prices

__all__ = ["CostEstimate", "Price", "Reserved", "data_prices", "estimate", "needed_prices"]
