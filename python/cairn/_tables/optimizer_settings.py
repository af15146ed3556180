"""What a torch.optim optimizer means to the servers: kind, flags and hyper-parameters of a group.

Supported options work exactly; others are refused here, at the wrap, never ignored.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .. import _core
from ..optim import FTRL, RowwiseAdagrad

Hyper = tuple[float, float, float, float, float, float]  # lr, weight_decay, beta1, beta2, eps, dampening

NO_HYPER: Hyper = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # where no optimizer is asked: assigns, reductions

KINDS: dict[type, str] = {
    torch.optim.SGD: "sgd",
    torch.optim.Adagrad: "adagrad",
    torch.optim.Adam: "adam",
    torch.optim.AdamW: "adamw",
    torch.optim.RMSprop: "rmsprop",
    torch.optim.SparseAdam: "sparse_adam",
    RowwiseAdagrad: "rowwise_adagrad",
    FTRL: "ftrl",
}
_ROWS_ONLY = ("sparse_adam", "rowwise_adagrad")
_FOR_TABLES = {  # and what each keeps of a row
    "sgd": (), "adagrad": ("sum",), "sparse_adam": ("exp_avg", "exp_avg_sq"), "rowwise_adagrad": ("sum",),
    "ftrl": ("z", "n")}


@dataclass(frozen=True)
class GroupSettings:
    """What of a parameter group is fixed in its table."""

    kind: str
    flags: int
    initial_state: float = 0.0
    state_names: tuple[str, ...] = ()  # torch's names of the state columns 1, 2, 3
    has_step: bool = False  # torch's state has "step"

    def initial(self, column: int) -> float:
        """What a state column has before the first step."""
        is_z = self.kind == "ftrl" and column == 1  # which is no accumulator
        return 0.0 if is_z else self.initial_state


def kind_of(optimizer: torch.optim.Optimizer) -> str | None:
    """Exact types only: a subclass may compute something else."""
    return KINDS.get(type(optimizer))


def settings_of(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> GroupSettings:
    kind = kind_of(optimizer)
    if kind is None:
        raise ValueError(
            f"the servers have no {type(optimizer).__name__}: wrap it with update=\"worker\" "
            "(the servers then only reduce, and each worker updates), or use SGD, Adagrad, Adam, "
            "AdamW, RMSprop or cairn.optim.FTRL"
        )
    if kind in _ROWS_ONLY:
        raise ValueError(
            f"{type(optimizer).__name__} is for tables (cairn.nn.Embedding) alone, and this group has "
            "ordinary parameters: give those to another optimizer, wrapped by itself"
        )
    if group.get("differentiable"):
        raise ValueError("differentiable=True needs the update in this process: use update=\"worker\"")
    if kind == "adam" and group.get("decoupled_weight_decay"):
        kind = "adamw"
    flags, names, initial, has_step = 0, [], 0.0, kind != "sgd"
    if group.get("maximize"):
        flags |= _core.FLAG_MAXIMIZE
    if kind == "sgd":
        if group["momentum"] != 0:
            flags |= _core.FLAG_MOMENTUM
            names.append("momentum_buffer")
        if group["nesterov"]:
            flags |= _core.FLAG_NESTEROV
    elif kind == "adagrad":
        initial = float(group.get("initial_accumulator_value", 0.0))
        names.append("sum")
    elif kind == "ftrl":
        initial = float(group["initial_accumulator_value"])
        names += ["z", "n"]
    elif kind in ("adam", "adamw"):
        names += ["exp_avg", "exp_avg_sq"]
        if group["amsgrad"]:
            flags |= _core.FLAG_AMSGRAD
            names.append("max_exp_avg_sq")
    elif kind == "rmsprop":
        names.append("square_avg")
        if group["momentum"] != 0:
            flags |= _core.FLAG_MOMENTUM
            names.append("momentum_buffer")
        if group["centered"]:
            flags |= _core.FLAG_CENTERED
            names.append("grad_avg")
    else:
        raise AssertionError(f"{kind} has no settings here")
    return GroupSettings(kind, flags, initial, tuple(names), has_step)


def table_settings_of(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> GroupSettings:
    """The same for a table of rows that the group holds. What torch refuses for sparse gradients, or
    would do to all rows in every step, is refused."""
    kind, name = kind_of(optimizer), type(optimizer).__name__
    if kind not in _FOR_TABLES:
        other = "torch.optim.SparseAdam" if kind in ("adam", "adamw") else "torch.optim.Adagrad"
        raise ValueError(
            f"{name} changes every row of a table in every step, the servers only the rows that have a "
            f"gradient: give the table to {other}, SGD, cairn.optim.RowwiseAdagrad or cairn.optim.FTRL, "
            "wrapped by itself (several optimizers work side by side)"
        )
    for option in ("momentum", "weight_decay"):
        if group.get(option):
            raise ValueError(
                f"{name} with {option}={group[option]} would change rows without a gradient too, and tables "
                f"are changed only where they have one: put the table into a group of its own with {option}=0"
            )
    flags = _core.FLAG_MAXIMIZE if group.get("maximize") else 0
    initial = float(group.get("initial_accumulator_value", 0.0))
    return GroupSettings(kind, flags, initial, _FOR_TABLES[kind], has_step=kind != "sgd")


def hyper_of(kind: str, group: dict[str, Any]) -> Hyper:
    """The group's hyper-parameters now: schedulers may change them every step."""
    if kind == "mean":  # nothing is computed with them, but workers that disagree are told
        lr, decay = (float(value) if isinstance(value, (int, float, torch.Tensor)) else 0.0
                     for value in (group.get("lr"), group.get("weight_decay")))
        return (lr, decay, 0.0, 0.0, 0.0, 0.0)
    lr, decay = float(group["lr"]), float(group.get("weight_decay", 0.0))
    if kind == "sgd":
        return (lr, decay, float(group["momentum"]), 0.0, 0.0, float(group["dampening"]))
    if kind == "adagrad":
        return (lr, decay, 0.0, 0.0, float(group["eps"]), float(group["lr_decay"]))
    if kind == "rowwise_adagrad":
        return (lr, 0.0, 0.0, 0.0, float(group["eps"]), 0.0)
    if kind == "ftrl":
        return (lr, float(group["l2"]), float(group["l1"]), float(group["beta"]), 0.0, 0.0)
    if kind in ("adam", "adamw", "sparse_adam"):
        beta1, beta2 = group["betas"]
        return (lr, decay, float(beta1), float(beta2), float(group["eps"]), 0.0)
    if kind == "rmsprop":
        return (lr, decay, float(group["momentum"]), float(group["alpha"]), float(group["eps"]), 0.0)
    raise AssertionError(f"{kind} has no hyper-parameters here")


def check_unchanged(settings: GroupSettings, optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
    """A group's flags decide what the servers keep: they can't be turned on half-way."""
    now = settings_of(optimizer, group)
    if now.flags | _core.FLAG_MOMENTUM != settings.flags | _core.FLAG_MOMENTUM or now.flags & ~settings.flags:
        raise ValueError(
            "momentum, nesterov, amsgrad, centered or maximize was changed after the wrap, and the "
            "servers keep other state: set it before cairn.DistributedOptimizer(...)"
        )
