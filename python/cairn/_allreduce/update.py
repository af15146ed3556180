"""The update of all-reduced parameters: every worker makes the same one, with its inner optimizer.

So what it depends on must be the same everywhere: gradients are, by the all-reduce;
hyper-parameters are compared, and given to workers that are only along for the ride.
"""
from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..errors import Error


def check_parameters(params: Sequence[torch.Tensor], names: Sequence[str]) -> None:
    for param, name in zip(params, names):
        if not param.is_floating_point():
            raise TypeError(
                f"{name} is {param.dtype}: only real floating point parameters can be all-reduced")
        if param.layout != torch.strided:
            raise TypeError(f"{name} is sparse ({param.layout}) and can't be all-reduced: assign it "
                            "to the servers")


def check_gradients(gradients: Sequence[torch.Tensor | None], names: Sequence[str]) -> None:
    for gradient, name in zip(gradients, names):
        if gradient is not None and gradient.layout != torch.strided:
            raise TypeError(
                f"the gradient of {name} is sparse ({gradient.layout}): an all-reduce would send it as "
                "a dense one. Use cairn.nn.Embedding.from_torch(), or make the nn.Embedding with "
                "sparse=False")


class Update:
    def __init__(self, params: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
        self._params, self._optimizer = params, optimizer
        self._ours = {id(param) for param in params}

    def _groups(self) -> Iterator[dict[str, Any]]:
        for group in self._optimizer.param_groups:
            if any(id(param) in self._ours for param in group["params"]):
                yield group

    def _numbers(self) -> Iterator[tuple[dict[str, Any], str, list[float]]]:
        """What the optimizer computes with, group by group."""
        for group in self._groups():
            for key in sorted(key for key in group if key not in ("params", "initial_lr")):
                values = group[key] if isinstance(group[key], (tuple, list)) else [group[key]]
                if all(_is_number(value) for value in values):
                    yield group, key, [float(value) for value in values]

    def hypers(self) -> list[float]:
        return [number for _, _, numbers in self._numbers() for number in numbers]

    def difference(self, ours: list[float], theirs: list[float]) -> str | None:
        """Names what is not the same."""
        at = 0
        for _, key, numbers in self._numbers():
            mine, other = ours[at:at + len(numbers)], theirs[at:at + len(numbers)]
            if mine != other:
                return f"{key} is {_text(mine)} on one and {_text(other)} on the other"
            at += len(numbers)
        return None if len(ours) == len(theirs) else "their optimizers have different settings"

    def step(self, gradients: Sequence[torch.Tensor | None],
             hypers: list[float] | None) -> None:
        """Sets the gradients and lets the inner optimizer step these parameters alone, with other
        workers' hyper-parameters if given. Its step hooks are the wrap's business."""
        for param, gradient in zip(self._params, gradients):
            param.grad = gradient
        groups = self._optimizer.param_groups
        held = [(group, group["params"]) for group in groups]
        own = self._take_hypers(hypers) if hypers is not None else []
        for group, params in held:
            group["params"] = [param for param in params if id(param) in self._ours]
        step = type(self._optimizer).step
        if getattr(step, "hooked", False):
            step = step.__wrapped__  # type: ignore[attr-defined]  # torch's mark above says that it is there
        try:
            step(self._optimizer)
        finally:
            for group, params in held:
                group["params"] = params
            for group, key, value in own:
                group[key] = value

    def _take_hypers(self, hypers: list[float]) -> list[tuple[dict[str, Any], str, Any]]:
        """Returns what was there."""
        own, at = [], 0
        for group, key, numbers in list(self._numbers()):
            own.append((group, key, group[key]))
            group[key] = _like(group[key], hypers[at:at + len(numbers)])
            at += len(numbers)
        return own

    # Values and state, for workers that are new.
    def pack(self, step: int, in_step: bool) -> torch.Tensor:
        """As bytes, on the CPU."""
        state = self._optimizer.state
        everything = {
            "steps": step,
            "in_step": in_step,
            "params": [param.detach().cpu() for param in self._params],
            "state": [
                {key: _packed(value, param, key) for key, value in state[param].items()}
                if param in state else {}
                for param in self._params
            ],
        }
        stream = io.BytesIO()
        torch.save(everything, stream)
        return torch.frombuffer(bytearray(stream.getbuffer()), dtype=torch.uint8)

    @torch.no_grad()
    def unpack(self, data: torch.Tensor) -> tuple[int, bool]:
        """Takes them; returns the number of the step, and whether the others are in it."""
        found = torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=True)
        if len(found["params"]) != len(self._params):
            raise Error(
                f"the first worker all-reduces {len(found['params'])} parameters, this one "
                f"{len(self._params)}: all workers must make the same model and call cairn.assign() "
                "alike")
        for param, value, entry in zip(self._params, found["params"], found["state"]):
            if param.shape != value.shape:
                raise Error(f"a parameter has shape {tuple(value.shape)} on the first worker and "
                            f"{tuple(param.shape)} here: all workers must make the same model")
            if not torch.equal(param, value.to(param.device)):  # a write would count as the user's
                param.copy_(value)
            self._optimizer.state.pop(param, None)
            if entry:
                self._optimizer.state[param] = {
                    key: state.to(param.device) if moves else state
                    for key, (state, moves) in entry.items()}
        return found["steps"], found["in_step"]


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, (bool, int, float))


def _like(before: Any, numbers: list[float]) -> Any:
    if isinstance(before, (tuple, list)):
        return type(before)(_like(b, [n]) for b, n in zip(before, numbers))
    if isinstance(before, torch.Tensor):
        return torch.full_like(before, numbers[0])
    return type(before)(numbers[0])


def _packed(value: Any, param: torch.Tensor, key: str) -> tuple[Any, bool]:
    """With whether it lies where its parameter does: step counts are on the CPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu(), value.device == param.device
    if value is None or isinstance(value, (bool, int, float, str)):
        return value, False
    raise Error(f"the optimizer's state has a {type(value).__name__} ({key}), which can't be given "
                "to other workers: assign the parameters to the servers")


def _text(numbers: list[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)
