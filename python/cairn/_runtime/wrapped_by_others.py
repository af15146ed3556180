"""What other libraries put around a model or a sampler, where a worker is one of several: then gradients or
samples would be shared out twice."""
from __future__ import annotations

import gc
import sys
from types import FrameType

import torch
from torch.nn.parallel import DistributedDataParallel

from ..errors import Error


def in_ddp(param: torch.Tensor) -> bool:
    """A DistributedDataParallel holds it. Looks at every object of the process: where an error is told."""
    return any(any(held is param for held in thing.parameters()) for thing in gc.get_objects()
               if issubclass(type(thing), DistributedDataParallel) and "_modules" in vars(thing))


DDP_ADVICE = ("DistributedDataParallel has written to it: cairn averages the gradients already, so leave "
              "that wrap out. accelerate and transformers.Trainer: call "
              "cairn.compat.accelerate.adapt(accelerator) before prepare(), or adapt(trainer) before "
              'train(); Lightning: Trainer(devices=1, strategy="auto")')


def refuse_a_second_split() -> None:
    """For a sampler whose samples are those of this worker, when it is iterated: another sampler around it
    that deals out its samples or batches among the workers would leave most of them unused."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        # Asking a frame for its variables keeps all of them alive until it ends: only methods are asked.
        method = frame.f_code.co_varnames[:1] == ("self",)
        outer = frame.f_locals.get("self") if method else None
        if isinstance(outer, torch.utils.data.Sampler):
            parts = max(_number(outer, "num_processes"), _number(outer, "num_replicas"))
            if parts > 1:
                raise Error(
                    f"{type(outer).__name__} deals out the samples of cairn.data.Sampler among {parts} "
                    "workers once more, so that most would be used by nobody. accelerate: call "
                    "cairn.compat.accelerate.adapt(accelerator) before prepare(); Lightning: "
                    "Trainer(use_distributed_sampler=False); or give the loader a plain sampler")
        frame = frame.f_back


def _number(thing: object, name: str) -> int:
    value = getattr(thing, name, 1)
    return value if isinstance(value, int) else 1
