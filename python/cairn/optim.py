"""Optimizers of sparse models that torch.optim does not have.

    optimizer = cairn.optim.FTRL(model.parameters(), lr=0.1, l1=1.0)
    optimizer = cairn.DistributedOptimizer(optimizer, model)

Under cairn.DistributedOptimizer the servers do the same in C++. What is here works by itself too,
on ordinary parameters, and is written to be read: it is what the servers are compared with."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

__all__ = ["FTRL", "RowwiseAdagrad"]


class _RowOptimizer(torch.optim.Optimizer):
    """Calls `_update(group, state, values, gradient, rows)` for each parameter that has a
    gradient."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    state = self.state[param]
                    if not state:
                        state["step"] = torch.tensor(0.0)
                        self._start(group, state, param)
                    state["step"] += 1
                    self._step_one(group, state, param)
        return loss

    def _step_one(self, group: dict[str, Any], state: dict[str, Any], param: torch.Tensor) -> None:
        grad = param.grad
        assert grad is not None
        if grad.is_sparse:
            grad = grad.coalesce()
            rows: torch.Tensor | None = grad.indices()[0]
            grad = grad.values()  # the others stay as they are
        else:
            rows = torch.arange(len(param), device=param.device) if param.dim() else None
        if group["maximize"]:
            grad = -grad
        if rows is None:
            columns = {name: value.view(1) for name, value in state.items() if name != "step"}
            first = torch.zeros(1, dtype=torch.long)
            self._update(group, columns, param.view(1), grad.view(1), first)
        else:
            self._update(group, state, param, grad, rows)

    def _start(self, group: dict[str, Any], state: dict[str, Any], param: torch.Tensor) -> None:
        raise NotImplementedError

    def _update(self, group: dict[str, Any], state: dict[str, Any], values: torch.Tensor,
                grad: torch.Tensor, rows: torch.Tensor) -> None:
        raise NotImplementedError


class RowwiseAdagrad(_RowOptimizer):
    """Adagrad with one accumulator a row, of the mean of the gradient's squares: an eighth or less
    of Adagrad's state for wide rows. A row is params[i]; of a gradient that is sparse only its rows
    change."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, eps: float = 1e-10,
                 initial_accumulator_value: float = 0.0, *, maximize: bool = False) -> None:
        _check(lr=lr, eps=eps, initial_accumulator_value=initial_accumulator_value)
        super().__init__(params, dict(lr=lr, eps=eps, maximize=maximize,
                                      initial_accumulator_value=initial_accumulator_value))

    def _start(self, group: dict[str, Any], state: dict[str, Any], param: torch.Tensor) -> None:
        shape = param.shape[:1]
        state["sum"] = param.new_full(shape, group["initial_accumulator_value"])

    def _update(self, group: dict[str, Any], state: dict[str, Any], values: torch.Tensor,
                grad: torch.Tensor, rows: torch.Tensor) -> None:
        squares = grad * grad
        total = state["sum"][rows] + (squares.flatten(1).mean(1) if squares.dim() > 1 else squares)
        state["sum"][rows] = total
        spread = (total.sqrt() + group["eps"]).view(-1, *[1] * (grad.dim() - 1))
        values[rows] -= group["lr"] * grad / spread


class FTRL(_RowOptimizer):
    """FTRL-Proximal (McMahan et al., "Ad click prediction: a view from the trenches", 2013).

    lr, beta: α and β of the rate α / (β + √n); l1 makes weights that matter little exactly 0, l2
    shrinks them. initial_accumulator_value: n at the start. A weight is a function of what was seen
    of it: its initial value is gone after its first gradient."""

    def __init__(self, params: Iterable[Any], lr: float = 0.1, beta: float = 1.0, l1: float = 0.0,
                 l2: float = 0.0, initial_accumulator_value: float = 0.0, *,
                 maximize: bool = False) -> None:
        _check(lr=lr, beta=beta, l1=l1, l2=l2, initial_accumulator_value=initial_accumulator_value)
        if lr == 0:
            raise ValueError("lr is 0: FTRL divides by it")
        if beta == 0 and l2 == 0 and initial_accumulator_value == 0:
            raise ValueError(
                "beta, l2 and initial_accumulator_value are all 0: a gradient of 0 divides by 0")
        super().__init__(params, dict(lr=lr, beta=beta, l1=l1, l2=l2, maximize=maximize,
                                      initial_accumulator_value=initial_accumulator_value))

    def _start(self, group: dict[str, Any], state: dict[str, Any], param: torch.Tensor) -> None:
        state["z"] = torch.zeros_like(param)
        state["n"] = torch.full_like(param, group["initial_accumulator_value"])

    def _update(self, group: dict[str, Any], state: dict[str, Any], values: torch.Tensor,
                grad: torch.Tensor, rows: torch.Tensor) -> None:
        alpha, beta, l1, l2 = (group[name] for name in ("lr", "beta", "l1", "l2"))
        n, weights = state["n"][rows], values[rows]
        grown = n + grad * grad
        sigma = (grown.sqrt() - n.sqrt()) / alpha
        z = state["z"][rows] + (grad - sigma * weights)
        shrunk = -(z - z.sign() * l1) / ((beta + grown.sqrt()) / alpha + l2)
        values[rows] = torch.where(z.abs() <= l1, torch.zeros_like(z), shrunk)
        state["z"][rows], state["n"][rows] = z, grown


def _check(**settings: float) -> None:
    for name, value in settings.items():
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name} is {value}: give a number that is not negative")
