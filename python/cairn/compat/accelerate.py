"""For Hugging Face's accelerate, and for transformers.Trainer, which is built on it: docs/guide/pytorch.md.

    accelerator = cairn.compat.accelerate.adapt(accelerate.Accelerator())

    trainer = transformers.Trainer(model, …, optimizers=(cairn.DistributedOptimizer(…), None))
    cairn.compat.accelerate.adapt(trainer)

Where there are several workers, accelerate wraps models in DistributedDataParallel, splits the batches of
every loader, and clips each worker's own gradient. An adapted one leaves the first to Cairn, the second
too if the loader has a cairn.data.Sampler, and clips by the norm of the mean gradient.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import torch

from ..data import Sampler
from ..errors import Error
from ..optimizer import DistributedOptimizer

__all__ = ["adapt"]
T = TypeVar("T")


def adapt(accelerator: T) -> T:
    """Takes an accelerate.Accelerator, or what has one (a Trainer), before it prepares anything; returns
    it. A second time it does nothing."""
    one: Any = getattr(accelerator, "accelerator", accelerator)
    if not all(callable(getattr(one, name, None)) for name in ("prepare_model", "prepare_data_loader")):
        raise TypeError(f"{type(accelerator).__name__} is neither an accelerate.Accelerator nor has one")
    if not isinstance(vars(one).get("prepare_model"), _PrepareModel):
        if one._models or one._optimizers or one._dataloaders:
            raise Error("the accelerator has prepared something already: adapt it right after it is made")
        one.prepare_model = _PrepareModel(one)
        one.prepare_data_loader = _PrepareLoader(one)
        one.prepare_optimizer = _PrepareOptimizer(one)
        one.clip_grad_norm_ = _Clip(one)
    return accelerator


class _PrepareModel:
    def __init__(self, accelerator: Any) -> None:
        self._original = accelerator.prepare_model

    def __call__(self, model: torch.nn.Module, device_placement: bool | None = None,
                 evaluation_mode: bool = False) -> Any:
        """Device and mixed precision, as ever; no DistributedDataParallel."""
        return self._original(model, device_placement=device_placement, evaluation_mode=True)


class _PrepareLoader:
    def __init__(self, accelerator: Any) -> None:
        self._accelerator, self._original = accelerator, accelerator.prepare_data_loader

    def __call__(self, data_loader: Any, device_placement: bool | None = None,
                 slice_fn_for_dispatch: Any = None) -> Any:
        if getattr(data_loader, "_is_accelerate_prepared", False) or not isinstance(
                getattr(data_loader, "sampler", None), Sampler):
            return self._original(data_loader, device_placement, slice_fn_for_dispatch)
        from accelerate.data_loader import prepare_data_loader

        accelerator = self._accelerator
        prepared = prepare_data_loader(
            data_loader, accelerator.device, num_processes=1, process_index=0, dispatch_batches=False,
            put_on_device=accelerator.device_placement if device_placement is None else device_placement)
        accelerator._dataloaders.append(prepared)
        return prepared


class _PrepareOptimizer:
    def __init__(self, accelerator: Any) -> None:
        self._original = accelerator.prepare_optimizer

    def __call__(self, optimizer: torch.optim.Optimizer, device_placement: bool | None = None) -> Any:
        """The state is on the servers, on no device: it need not be read and loaded again."""
        ours = isinstance(_inner(optimizer), DistributedOptimizer)
        return self._original(optimizer, device_placement=False if ours else device_placement)


class _Clip:
    def __init__(self, accelerator: Any) -> None:
        self._accelerator, self._original = accelerator, accelerator.clip_grad_norm_

    def __call__(self, parameters: Iterable[torch.Tensor] | torch.Tensor, max_norm: float,
                 norm_type: float = 2) -> Any:
        params = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        found = [one for one in map(_inner, self._accelerator._optimizers) if _holds(one, params)]
        if len(found) > 1:
            raise Error("these parameters are those of several optimizers: clip each by itself, with "
                        "optimizer.optimizer.clip_grad_norm_(max_norm)")
        if not found:
            return self._original(params, max_norm, norm_type)
        self._accelerator.unscale_gradients()
        return found[0].clip_grad_norm_(max_norm, float(norm_type))


def _inner(optimizer: Any) -> Any:
    """Of an AcceleratedOptimizer, which may be wrapped more than once."""
    while not isinstance(optimizer, DistributedOptimizer) and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def _holds(optimizer: Any, params: list[torch.Tensor]) -> bool:
    wanted = {id(param) for param in params}
    return isinstance(optimizer, DistributedOptimizer) and any(
        id(param) in wanted for group in optimizer.param_groups for param in group["params"])
