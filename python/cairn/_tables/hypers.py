"""Names and defaults of the optimizers of plain tables: those of torch.optim and cairn.optim."""
from __future__ import annotations

from typing import Any, NamedTuple

from .. import _core
from ..errors import InvalidArgumentError

# lr, weight_decay, beta1, beta2, eps, dampening: as the extension takes them.
Hyper = tuple[float, float, float, float, float, float]

_DEFAULTS: dict[str, dict[str, Any]] = {
    "sum": {},
    "mean": {},
    "first": {},
    "sgd": {"lr": 1e-3, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0},
    "adagrad": {"lr": 1e-2, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-10},
    "adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "adamw": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2},
    "rmsprop": {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0.0, "momentum": 0.0},
    "sparse_adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8},
    "rowwise_adagrad": {"lr": 1e-2, "eps": 1e-10},
    "ftrl": {"lr": 0.1, "beta": 1.0, "l1": 0.0, "l2": 0.0},
}
_WITH_ACCUMULATOR = ("adagrad", "rowwise_adagrad", "ftrl")
# Of the optimizers of rows: the columns of state, from 1 on, by the names that torch.optim gives them.
_STATE = {
    "adagrad": ("sum",),
    "sparse_adam": ("exp_avg", "exp_avg_sq"),
    "rowwise_adagrad": ("sum",),
    "ftrl": ("z", "n"),
}
_FLAGS = {
    "sgd": {"nesterov": _core.FLAG_NESTEROV},
    "adam": {"amsgrad": _core.FLAG_AMSGRAD},
    "adamw": {"amsgrad": _core.FLAG_AMSGRAD},
    "rmsprop": {"centered": _core.FLAG_CENTERED},
}


class Optimizer(NamedTuple):
    """What a table does with a push."""

    name: str
    flags: int
    initial_state: float
    settings: dict[str, Any]

    @property
    def hyper(self) -> Hyper:
        return _tuple(self.settings)

    def hyper_with(self, changes: dict[str, Any]) -> Hyper:
        """The settings of one push."""
        _check_names(self.name, changes, self.settings, "a push to this table")
        if changes.get("momentum") and not self.flags & _core.FLAG_MOMENTUM:
            raise InvalidArgumentError(
                "the table was made without momentum and keeps no buffer for it: make it with momentum=…")
        return _tuple({**self.settings, **changes})

    @property
    def counts_steps(self) -> bool:
        """Of rows: a push says which step of the table it is."""
        return self.name in ("sparse_adam", "adagrad")

    def column(self, state: str | None) -> int:
        """Of rows: where this state is read; None: the values."""
        names = _STATE.get(self.name, ())
        if state is None or state in names:
            return 0 if state is None else names.index(state) + 1
        if state == "step" and self.counts_steps:
            return _core.STEP_COLUMN
        known = [*names, "step"] if self.counts_steps else names
        raise InvalidArgumentError(
            f'optimizer "{self.name}" keeps no {state!r}: it keeps {", ".join(known) or "nothing"}')


def _check_names(name: str, given: dict[str, Any], known: Any, what: str) -> None:
    for key in given:
        if key == "storage":
            raise InvalidArgumentError("storage= is for rows, in a sparse table: a dense table is float32")
        if key not in known:
            raise InvalidArgumentError(
                f'optimizer "{name}" has no {key}: {what} takes {", ".join(sorted(known)) or "no settings"}')


def _tuple(settings: dict[str, Any]) -> Hyper:
    if "l1" in settings:  # FTRL: l1, l2 and beta stand in for others
        return (float(settings["lr"]), float(settings["l2"]), float(settings["l1"]), float(settings["beta"]),
                0.0, 0.0)
    beta1, beta2 = settings.get("betas", (settings.get("momentum", 0.0), settings.get("alpha", 0.0)))
    return (float(settings.get("lr", 0.0)), float(settings.get("weight_decay", 0.0)), float(beta1),
            float(beta2), float(settings.get("eps", 0.0)),
            float(settings.get("dampening", settings.get("lr_decay", 0.0))))


def optimizer(name: str, given: dict[str, Any], *, maximize: bool, reduce: str) -> Optimizer:
    """Checks the keyword arguments of a new table."""
    if name not in _DEFAULTS:
        raise InvalidArgumentError(f'optimizer "{name}" is unknown: it is one of {", ".join(_DEFAULTS)}')
    if reduce not in ("mean", "sum"):
        raise InvalidArgumentError(f'reduce is "{reduce}": it is "mean" or "sum"')
    defaults, flag_names = _DEFAULTS[name], _FLAGS.get(name, {})
    extra = {"initial_accumulator_value"} if name in _WITH_ACCUMULATOR else set()
    _check_names(name, given, {*defaults, *flag_names, *extra}, "a table with it")
    flags = _core.FLAG_MAXIMIZE if maximize else 0
    if reduce == "sum" and name != "sum":  # which sums anyway
        flags |= _core.FLAG_REDUCE_SUM
    for word, flag in flag_names.items():
        if given.get(word, False):
            flags |= flag
    if given.get("momentum"):
        flags |= _core.FLAG_MOMENTUM
    settings = {**defaults, **{k: v for k, v in given.items() if k in defaults}}
    return Optimizer(name, flags, float(given.get("initial_accumulator_value", 0.0)), settings)
