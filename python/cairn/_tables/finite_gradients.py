"""NaN and Inf in gradients: found, and told."""
from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import _core
from ..errors import Error, NotFiniteError
from .tensor_pieces import is_direct


def all_finite(gradients: list[torch.Tensor]) -> bool:
    here = [g for g in gradients if is_direct(g)]
    others = [g.detach() for g in gradients if not is_direct(g)]
    if not _core.all_finite([g.data_ptr() for g in here], [g.numel() for g in here]):
        return False
    return not others or bool(torch.isfinite(torch.nn.utils.get_total_norm(others, float("inf"))))


def is_refused(pending: _core.Pending) -> bool:
    """The gradient is not finite: it was found before anything was sent."""
    if pending.ready():
        try:
            pending.wait()
        except NotFiniteError:
            return True
        except Error:
            pass  # whoever waits for it hears of it
    return False


def not_finite(names: Sequence[str], gradients: Sequence[torch.Tensor | None]) -> str:
    for name, gradient in zip(names, gradients):
        if gradient is None or bool(torch.isfinite(gradient).all()):
            continue
        what = "NaN" if bool(torch.isnan(gradient).any()) else "infinite"
        return (f"the gradient of {name} is {what} on this worker: nothing of it was sent. Look for "
                "the cause in the loss, or use torch.amp.GradScaler if it comes from half precision")
    return "the gradients of this worker are not finite: nothing of them was sent"
