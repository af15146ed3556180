"""cairn.DistributedOptimizer: a torch.optim optimizer whose update runs on the servers.

docs/guide/pytorch.md is its page. Its parts are in _train/: served_model.py has what lies on the servers
and how it starts, steps.py and step.py what a step does, optimizer_state.py the state_dict.
"""
from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from ._rows.unserved_steps import refuse_steps_without
from ._runtime import context
from ._runtime.wrapped_by_others import DDP_ADVICE, in_ddp
from ._tables.weight import Weight
from ._tables.wire_formats import wire_of_tensors
from ._train import late_joiner
from ._train.join import RoundWithoutData, join
from ._train.overlap import Overlap
from ._train.served_model import ServedModel
from ._train.steps import Steps
from .errors import Error, NotFiniteError
from .modes import BoundedStaleness, Mode, Sync, check_mode


class ParametersChangedError(Error):
    """A parameter was written to outside the optimizer."""

    __module__ = "cairn"  # where users find it


class DistributedOptimizer(torch.optim.Optimizer):
    """Wraps an optimizer so that all workers train one model.

    optimizer: SGD, Adagrad, Adam, AdamW, RMSprop or cairn.optim.FTRL; any other (but LBFGS) with
        update="worker". Tables of rows have SGD, Adagrad, SparseAdam, RowwiseAdagrad and FTRL.
    model: for the names in messages, for its buffers (BatchNorm: the first worker's are the truth)
        and for parameters that the optimizer does not hold. Optional.
    mode: cairn.Sync(), cairn.Async() or cairn.BoundedStaleness(steps).
    update: "server", or "worker": the servers only reduce and each worker updates (Sync only).
    reduce: "mean" of the workers' gradients, weighted by step(samples=n), or their "sum" (Sync).
    root_rank: whose initial weights and state all workers start with.
    overlap: gradients leave while backward still runs, in several tables. They must be final then: no
        clipping, no GradScaler, no samples=; to accumulate, see no_sync().
    wire: between hosts, None, "bf16" or "f16" (gradients and weights in two bytes), "topk" (of each
        gradient the largest wire_topk, for example 0.01; the rest with the next one) or "lz4". Tables
        of rows have their own.
    """

    _step_supports_amp_scaling = True  # torch.amp.GradScaler leaves scale and found_inf to us

    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module | None = None, *,
                 mode: Mode = Sync(), update: str = "server", reduce: str = "mean",
                 root_rank: int = 0, overlap: bool = False, wire: str | None = None,
                 wire_topk: float | None = None) -> None:
        _check_arguments(optimizer, model, update, reduce)
        wire_settings = wire_of_tensors(wire, wire_topk)
        if update == "worker" and wire not in (None, "lz4"):
            raise ValueError(f'update="worker" sends exact gradients: wire={wire!r} is for update="server", '
                             'use "lz4"')
        self.mode = check_mode(mode)
        if update == "worker" and not isinstance(self.mode, Sync):
            raise ValueError('update="worker" needs Sync(): in other modes there is no common gradient')
        if reduce == "sum" and not isinstance(self.mode, Sync):
            raise ValueError('reduce="sum" is for Sync(): in other modes each gradient is applied by itself')
        if overlap and isinstance(self.mode, BoundedStaleness):
            raise ValueError("overlap=True is for Sync() and Async(): leave it out with BoundedStaleness()")
        self.optimizer = optimizer
        self._updates_here = update == "worker"
        self._reduce = reduce
        self._take_hooks_of_torch()
        self._served = ServedModel(optimizer, model, self.mode, reduces_only=self._updates_here,
                                   reduce=reduce, root_rank=root_rank, in_buckets=overlap,
                                   wire=wire_settings)
        self._overlap = self._make_overlap() if overlap else None
        self._steps = Steps(self._served, self._overlap)
        self._versions: list[int] = []
        self._taking_part: list[RoundWithoutData] = []  # a part in the others' step without a gradient
        if context.initialised():
            self._attach()
        refuse_steps_without(self)

    def _take_hooks_of_torch(self) -> None:
        """What Optimizer.__init__ sets up besides groups and state, which are the inner one's.
        Hooks that were registered there run here too."""
        for name, hooks in vars(self.optimizer).items():
            if name.startswith("_optimizer_"):
                of_step = name.startswith("_optimizer_step_")  # run by the inner step() there
                self.__dict__[name] = OrderedDict() if of_step and self._updates_here else hooks
        self._patch_step_function()

    def _make_overlap(self) -> Overlap:
        if self._updates_here:
            raise ValueError('overlap=True is for updates on the servers: leave it out, or update="worker"')
        return Overlap(self._served, self._check_versions)

    # What belongs to the inner optimizer.
    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.optimizer.state = state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]  # the inner one's, not to be set here
        return self.optimizer.defaults

    def __getstate__(self) -> Any:
        raise TypeError("a DistributedOptimizer can't be copied or pickled, its state is on the servers: use "
                        "state_dict()")

    def _refuses_inner_steps(self) -> bool | None:
        """The inner optimizer's own step() would change this worker's copies alone (unserved_steps.py). None
        after a cairn.shutdown(): what it had is the workers' then."""
        served, ctx = self._served, self._served.context
        if ctx is None or (context.initialised() and ctx is context.current()):
            return not served.updates_here
        return None

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self.optimizer!r}, mode={self.mode!r})"

    def zero_grad(self, set_to_none: bool = True) -> None:
        # What a Ctrl-C left under way is still sent from where the gradients lie; rows are not.
        under_way = self._served.under_way or (self._overlap is not None and self._overlap.under_way)
        self.optimizer.zero_grad(set_to_none=set_to_none or under_way)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in torch; every worker does the same. The new parameters get a table of their own."""
        self.optimizer.add_param_group(param_group)
        self._served.make_groups()
        if self._served.context is not None:
            self._attach()

    # A step.
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, *, samples: float | None = None) -> Any:
        """Sends the gradients and returns with the new parameters in place.

        samples: the weight of this worker's gradient in the mean. Give the number of samples in the
            batch where batches are not equal, on every worker.
        """
        weight = self._weight(samples)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        try:
            self._begin(steps=True)
            with self._writes():
                self._step(weight)
        except BaseException:
            # GradScaler takes them back only after a good step.
            for name in ("grad_scale", "found_inf"):
                self.__dict__.pop(name, None)
            raise
        finally:
            for table in self._served.tables:
                table.rows.source.count_step()
        # Schedulers made before the wrap look for it.
        self.optimizer._opt_called = True  # type: ignore[attr-defined]  # they set it in a hook of their own
        return loss

    def _weight(self, samples: float | None) -> Weight:
        if samples is None:
            return Weight()
        if self._reduce == "sum":
            raise ValueError('samples= is a weight in the mean: with reduce="sum" there is none')
        if isinstance(samples, str) or not 0 <= samples < math.inf:
            raise ValueError(f"samples is {samples!r}: give the number of samples in the batch")
        return Weight(float(samples), given=True)

    def _step(self, weight: Weight) -> None:
        found_inf = getattr(self, "found_inf", None)  # set by torch.amp.GradScaler for this step
        scale = getattr(self, "grad_scale", None)  # the same; None after unscale_()
        if self._overlap is not None and (found_inf is not None or weight.given):
            raise ValueError(
                f"{'samples=' if weight.given else 'a GradScaler'} with overlap=True: gradients leave in "
                "backward, before their scale or weight is known. Make the optimizer without overlap=True")
        skips = found_inf is not None and bool(float(found_inf) > 0)
        inverse_scale = 1.0 if scale is None else 1.0 / float(scale)
        if not self._served.sync:
            self._step_async(weight, skips, inverse_scale, quiet=found_inf is not None)
        elif self._steps.undecided is not None:
            self._steps.check_clipped(weight, scaled=scale is not None)
            self._decide(quiet=found_inf is not None)
        elif found_inf is not None:
            self._steps.contribute(weight, inverse_scale, skips)
            self._steps.sum_up()
            self._decide(quiet=True)
        else:
            self._steps.plain(weight)

    def _decide(self, quiet: bool) -> None:
        if not self._steps.decide() and not quiet:
            raise NotFiniteError(
                "the gradient of some worker is NaN or infinite (clip_grad_norm_ found it): the step was "
                "skipped on all workers. Look for the cause in the loss, or use torch.amp.GradScaler"
            )

    def _step_async(self, weight: Weight, skips: bool, inverse_scale: float, quiet: bool) -> None:
        if skips and not self._served.in_step and not self._served.bounded:
            return  # nobody waits for it
        if inverse_scale != 1.0 and not skips:
            for part in self._served.on_servers:
                for param in part.params:
                    if param.grad is not None:
                        param.grad.mul_(inverse_scale)
        if not self._steps.step_async(weight, inverse_scale, skips) and not quiet:
            raise NotFiniteError("the mean of the all-reduced gradients is NaN or infinite: they were not "
                                 "applied")

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0, *,
                        samples: float | None = None) -> torch.Tensor:
        """Clips by the global norm of the mean gradient over all workers, as one process would on the
        whole batch, and returns that norm. Call it right before step(), on every worker.

        In Sync() the gradients leave here, and step() says what becomes of them: p.grad stays as it
        is, and must not change in between. In Async() it is torch.nn.utils.clip_grad_norm_.
        """
        if self._overlap is not None:
            raise ValueError("clip_grad_norm_() with overlap=True: gradients have left in backward, before "
                             "their norm is known. Make the optimizer without overlap=True")
        if not self._served.sync:
            params = [param for part in self._served.parts for param in part.params]
            return torch.nn.utils.clip_grad_norm_(params, max_norm, norm_type)
        if not max_norm >= 0:
            raise ValueError(f"max_norm is {max_norm}: give a number that is not negative")
        if norm_type != 2.0:
            raise ValueError(f"clip_grad_norm_ has the 2-norm only, not norm_type={norm_type}")
        self._begin(clips=True)
        norm = self._steps.clip(float(max_norm), self._weight(samples))
        return torch.tensor(norm, dtype=torch.float32)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """As DistributedDataParallel has it: a backward in the block only adds to the gradients, with
        overlap=True too, and the next one outside sends the sum. (Without overlap=True only step()
        sends, and this does nothing.)"""
        with nullcontext() if self._overlap is None else self._overlap.paused():
            yield

    @contextmanager
    def join(self) -> Iterator[None]:
        """For workers that run out of data at different times, as in DistributedDataParallel: whoever
        leaves the block takes part in the others' steps, without a gradient, until all have left it."""
        with join(self):
            yield

    @torch.no_grad()
    def _take_part(self, waited_for: bool) -> None:
        """While this worker, a late joiner, waits in another optimizer's step (_train/late_joiner.py).
        `waited_for`: another worker waits for its part in a step of this one."""
        if self._overlap is not None and self._overlap.under_way:
            return  # its part was given in backward
        if not self._taking_part and waited_for:
            self._taking_part = self._steps.begin_joined()
        if self._taking_part and all(pending.ready() for pending in self._taking_part):
            self._taking_part = []
            with self._writes():
                self._served.calls.finish()

    # Values and state.
    def staleness(self) -> list[int]:
        """BoundedStaleness: how many of this worker's reads, in all its tables, have seen others 0, 1, 2 …
        steps behind. The 33rd number stands for 32 and more."""
        return context.current().client.staleness()

    @torch.no_grad()
    def pull(self) -> None:
        """The newest parameters (and the first worker's buffers) into the model: before evaluating in
        Async()."""
        self._begin(overwrites=True)
        with self._writes():
            self._served.pull()

    @torch.no_grad()
    def push_parameters(self) -> None:
        """The model's parameters, written to from outside (load_state_dict, clamp), become the
        servers'. Every worker calls it; the root's values win."""
        if self._served.context is None:
            return self._attach()
        self._settle(overwrites=True)
        with self._writes():
            self._served.push_parameters()

    def state_dict(self) -> dict[str, Any]:
        """As torch's; not collective: any worker may call it alone."""
        if self._overlap is not None:
            self._overlap.refuse_other_calls("state_dict()")
        return self._served.state.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's; every worker calls it, and the root's state wins."""
        with torch.no_grad():
            if self._served.context is not None:
                self._settle(overwrites=True)
            self._served.state.load_state_dict(state_dict)

    # Writes from outside are noticed by torch's version counters.
    @contextmanager
    def _writes(self) -> Iterator[None]:
        """What is written in the block is ours, however it ends."""
        try:
            yield
        finally:
            self._note_versions()

    def _attach(self) -> None:
        with torch.no_grad():
            late_joiner.add(self, self._served.attach())
            if self._overlap is not None:
                self._overlap.watch()
            self._note_versions()

    def _begin(self, *, steps: bool = False, clips: bool = False, overwrites: bool = False) -> None:
        """What every call begins with; `overwrites`: it need not mind the parameters' values."""
        served = self._served
        ctx = context.current()
        if self._overlap is not None and not steps:
            self._overlap.refuse_other_calls("another call of the optimizer")
        if served.context is None:
            self._attach()
        elif served.context is not ctx:
            raise Error("cairn was shut down after this optimizer was made: make the optimizer anew")
        if served.take_new_groups():
            self._attach()
        for table in served.tables:
            table.rows.source.settle()
        if not overwrites:
            self._check_versions()
        resumed = True
        self._taking_part = []
        try:
            resumed = self._steps.resume(steps=steps, clips=clips)
        finally:
            if resumed:
                self._note_versions()

    @torch.no_grad()
    def _begin_joining(self) -> list[RoundWithoutData]:
        self._settle()
        return self._steps.begin_joined()

    @torch.no_grad()
    def _go_on_joining(self, pendings: list[RoundWithoutData]) -> list[RoundWithoutData]:
        """Ends a round of a worker without data and begins the next one; empty when all have left."""
        with self._writes():
            self._served.calls.finish()
            if not all(pending.all_joined for pending in pendings):
                return self._steps.begin_joined()
            self._served.share_buffers()  # the root may have been the first to leave
            return []

    def _settle(self, *, overwrites: bool = False) -> None:
        """The same, and gradients that were clipped and not used for a step are dropped."""
        self._begin(overwrites=overwrites)
        if self._steps.undecided is not None:
            with self._writes():
                self._steps.drop()

    def _check_versions(self) -> None:
        served = self._served
        for param, name, version in zip(served.params(), served.parameter_names(), self._versions):
            if param._version != version:
                advice = ("call optimizer.push_parameters() on every worker after load_state_dict, clamp and "
                          "the like"
                          if not in_ddp(param) else DDP_ADVICE)
                raise ParametersChangedError(
                    f"parameter {name} was written to outside the optimizer, and the servers don't know: "
                    f"{advice}"
                )
        for table in served.tables:
            if table.rows.loaded() is not None:
                raise ParametersChangedError(
                    f"rows were loaded into table {table.names[0]}, and the servers don't have them: call "
                    "optimizer.push_parameters() on every worker after load_state_dict"
                )

    def _note_versions(self) -> None:
        params = list(self._served.params())
        torch.autograd.graph.increment_version(params)  # they were written to, behind torch's back
        self._versions = [param._version for param in params]


def _check_arguments(optimizer: Any, model: Any, update: str, reduce: str) -> None:
    if isinstance(optimizer, DistributedOptimizer):
        raise TypeError("this optimizer is distributed already: wrap the torch.optim one")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"give a torch.optim optimizer, not {type(optimizer).__name__}")
    if model is not None and not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is {type(model).__name__}, not a torch.nn.Module")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("LBFGS evaluates the loss several times in a step: it can't be distributed")
    if update not in ("server", "worker"):
        raise ValueError(f'update is {update!r}: give "server" or "worker"')
    if reduce not in ("mean", "sum"):
        raise ValueError(f'reduce is {reduce!r}: give "mean" or "sum"')
