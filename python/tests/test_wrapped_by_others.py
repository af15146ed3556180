"""What other libraries put around models, loaders and optimizers, without those libraries (with them:
check_trainers.py)."""
import types

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import BatchSampler, DataLoader

import cairn
import cairn.compat.accelerate

pytestmark = pytest.mark.usefixtures("worker")


def trained():
    model = nn.Linear(3, 2)
    return model, cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()


class Shard(BatchSampler):
    """As accelerate's BatchSamplerShard."""

    def __init__(self, inner, num_processes):
        self.inner, self.num_processes = inner, num_processes

    def __iter__(self):
        yield from list(self.inner)[::self.num_processes]

    def __len__(self):
        return len(self.inner) // self.num_processes


def test_a_model_in_ddp_is_told_what_to_do():
    model, optimizer = trained()
    dist.init_process_group("gloo")
    try:
        wrapped = nn.parallel.DistributedDataParallel(model)
        with pytest.raises(cairn.ParametersChangedError,
                           match=r"weight.*DistributedDataParallel.*cairn\.compat\.accelerate\.adapt\(accelerator\)"):
            step(wrapped, optimizer)
    finally:
        dist.destroy_process_group()
    other, optimizer = trained()
    with torch.no_grad():
        other.weight.zero_()
    with pytest.raises(cairn.ParametersChangedError, match=r"push_parameters\(\)"):
        step(other, optimizer)


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_are_not_dealt_out_twice(workers):
    data = list(range(12))

    def batches(parts):
        inner = BatchSampler(cairn.data.Sampler(data), 2, False)
        return list(DataLoader(data, batch_sampler=Shard(inner, parts), num_workers=workers))

    assert len(batches(1)) == 6
    with pytest.raises(cairn.Error, match=r"Shard deals out the samples of cairn\.data\.Sampler among 2 workers once"):
        batches(2)
    around = torch.utils.data.DistributedSampler(data, num_replicas=2, rank=0)
    assert len(list(around)) == 6  # by itself: nobody else's business


class Accelerator:
    """As accelerate's, which puts a module around models and doubles what it clips by."""

    def __init__(self):
        self._models, self._optimizers, self._dataloaders = [], [], []
        self.unscaled = 0

    def prepare_model(self, model, device_placement=None, evaluation_mode=False):
        self._models.append(model)
        return model if evaluation_mode else nn.Sequential(model)

    def prepare_data_loader(self, data_loader, device_placement=None, slice_fn_for_dispatch=None):
        return "split"

    def prepare_optimizer(self, optimizer, device_placement=None):
        self._optimizers.append(types.SimpleNamespace(optimizer=optimizer))
        return device_placement

    def clip_grad_norm_(self, parameters, max_norm, norm_type=2):
        return "its own"

    def unscale_gradients(self):
        self.unscaled += 1


def test_an_adapted_accelerator():
    model, optimizer = trained()
    accelerator = Accelerator()
    assert cairn.compat.accelerate.adapt(accelerator) is accelerator
    trainer = types.SimpleNamespace(accelerator=accelerator)
    assert cairn.compat.accelerate.adapt(trainer) is trainer  # the same one again
    assert accelerator.prepare_model(model) is model
    assert accelerator.prepare_optimizer(optimizer) is False
    assert accelerator.prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1)) is None
    assert accelerator.prepare_data_loader(DataLoader([1, 2])) == "split"
    model(torch.ones(2, 3)).sum().backward()
    norm = accelerator.clip_grad_norm_(model.parameters(), 0.5)
    assert accelerator.unscaled == 1
    assert norm.item() == pytest.approx(nn.utils.get_total_norm([p.grad for p in model.parameters()]).item())
    optimizer.step()
    assert accelerator.clip_grad_norm_(nn.Linear(1, 1).parameters(), 0.5) == "its own"
    _, second = trained()
    accelerator.prepare_optimizer(second)
    both = [p for one in (optimizer, second) for p in one.param_groups[0]["params"]]
    with pytest.raises(cairn.Error, match="several optimizers"):
        accelerator.clip_grad_norm_(both, 0.5)


def test_adapting_too_late_or_something_else():
    accelerator = Accelerator()
    accelerator.prepare_model(nn.Linear(1, 1))
    with pytest.raises(cairn.Error, match="prepared something already"):
        cairn.compat.accelerate.adapt(accelerator)
    with pytest.raises(TypeError, match="Linear is neither"):
        cairn.compat.accelerate.adapt(nn.Linear(1, 1))
