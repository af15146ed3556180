"""Strategies: which of Cairn's modes the updates are made in."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import InvalidArgumentError
from ...modes import Async, Mode, Sync

_NO_GEO = ("GEO does not exist in Cairn yet. Use StrategyFactory.create_async_strategy() "
           "(a_sync=True, k_steps=0), or create_sync_strategy()")


class DistributedStrategy:
    """a_sync=False: cairn.Sync(). a_sync=True, as at the start: cairn.Async(). k_steps > 0 in
    a_sync_configs would be GEO, which raises NotImplementedError until it exists. Anything else
    that Paddle has here raises: nothing is ignored."""

    __slots__ = ("_a_sync", "_k_steps")

    def __init__(self) -> None:
        self._a_sync = True
        self._k_steps = 0

    @property
    def a_sync(self) -> bool:
        return self._a_sync

    @a_sync.setter
    def a_sync(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"a_sync is True or False, not {value!r}")
        self._a_sync = value

    @property
    def a_sync_configs(self) -> dict[str, Any]:
        return {"k_steps": self._k_steps}

    @a_sync_configs.setter
    def a_sync_configs(self, configs: Mapping[str, Any]) -> None:
        for name in configs:
            if name != "k_steps":
                raise InvalidArgumentError(
                    f"a_sync_configs[{name!r}] has no counterpart in Cairn: leave it out")
        steps = configs.get("k_steps", self._k_steps)
        if not isinstance(steps, int) or isinstance(steps, bool):
            raise TypeError(f"k_steps is a whole number, not {steps!r}")
        if steps > 0:
            raise NotImplementedError(f"k_steps={steps} is GEO. {_NO_GEO}")
        self._k_steps = steps

    def mode(self) -> Mode:
        """For cairn.DistributedOptimizer."""
        return Async() if self._a_sync else Sync()

    def __setattr__(self, name: str, value: object) -> None:
        if not hasattr(type(self), name):
            raise InvalidArgumentError(
                f"DistributedStrategy.{name} has no counterpart in Cairn: leave it out")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"DistributedStrategy(a_sync={self._a_sync})"


class StrategyFactory:
    """Strategies by Paddle's names."""

    @staticmethod
    def create_sync_strategy() -> DistributedStrategy:
        """Every update is made of one gradient of each trainer."""
        strategy = DistributedStrategy()
        strategy.a_sync = False
        return strategy

    @staticmethod
    def create_async_strategy() -> DistributedStrategy:
        """Each gradient is applied as it comes."""
        return DistributedStrategy()

    @staticmethod
    def create_half_async_strategy() -> DistributedStrategy:
        """The same as async: a trainer's step ends when its own gradient is applied and the new
        parameters are here. Nothing is queued, which is what Paddle's half-async is for."""
        return DistributedStrategy()

    @staticmethod
    def create_geo_strategy(update_frequency: int = 100) -> DistributedStrategy:
        """Raises NotImplementedError until GEO exists."""
        raise NotImplementedError(_NO_GEO)
