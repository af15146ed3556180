"""The weight of a worker's gradient in the mean of a step."""
from __future__ import annotations

from typing import NamedTuple, TypedDict


class WeightOptions(TypedDict):
    weight: float
    weighted: bool


class Weight(NamedTuple):
    value: float = 1.0
    given: bool = False  # by samples=: then every worker gives one, or the round is refused

    @property
    def options(self) -> WeightOptions:
        """As calls on a table of the extension take it."""
        return {"weight": self.value, "weighted": self.given}


NO_WEIGHT = Weight(0.0)  # of a worker without a gradient
