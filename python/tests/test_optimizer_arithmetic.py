"""The update on the servers against torch's, for every option that is supported, and for
parameters of every kind. In one process, on an embedded cluster."""
import pytest
import torch
from torch import nn

import cairn
from optimizer_workers.problems import assert_close, backward, batch, copied, differs, net, tensors_of, train

pytestmark = pytest.mark.usefixtures("worker")

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD dampening": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
    "SGD nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True,
                                              weight_decay=0.1),
    "SGD maximize": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, maximize=True,
                                              weight_decay=0.1),
    "SGD fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "Adagrad all": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.1,
                                                 initial_accumulator_value=0.3, eps=1e-6),
    "Adagrad maximize": lambda p: torch.optim.Adagrad(p, lr=0.01, maximize=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "Adam all": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1,
                                           amsgrad=True),
    "Adam maximize": lambda p: torch.optim.Adam(p, lr=0.01, maximize=True, weight_decay=0.1),
    "Adam decoupled": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1,
                                                 decoupled_weight_decay=True),
    "Adam tensor lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "AdamW amsgrad": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, amsgrad=True,
                                                 foreach=False),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "RMSprop all": lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-5, weight_decay=0.1,
                                                 momentum=0.5, centered=True),
    "RMSprop momentum": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "RMSprop centered": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, maximize=True),
}


def both(make, model, alone, data=batch, steps=6, **options):
    """Trains one with the servers, the other with torch."""
    optimizer = cairn.DistributedOptimizer(make(model.parameters()), model, **options)
    plain = make(alone.parameters())
    for step in range(steps):
        train(model, optimizer, [data(0, step)])
        train(alone, plain, [data(0, step)])
    return optimizer, plain


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("mode", [cairn.Sync(), cairn.Async()], ids=["sync", "async"])
def test_equals_torch(name, mode):
    model, alone = net(), net()
    both(OPTIMIZERS[name], model, alone, mode=mode)
    assert differs(model, net())
    assert_close(model, alone)


def test_hyperparameters_may_change_every_step():
    model, alone = net(), net()
    make = OPTIMIZERS["Adam all"]
    optimizer = cairn.DistributedOptimizer(make(model.parameters()), model)
    plain = make(alone.parameters())
    for step in range(5):
        for one, other in ((model, optimizer), (alone, plain)):
            other.param_groups[0].update(lr=0.01 * (step + 1), betas=(0.5 + 0.1 * step, 0.9),
                                         weight_decay=0.1 * step)
            train(one, other, [batch(0, step)])
    assert_close(model, alone)


def test_groups_of_their_own_and_one_added_later():
    def make(model):
        return torch.optim.AdamW([
            {"params": [model[0].weight], "weight_decay": 0.5},
            {"params": [model[0].bias], "lr": 0.1, "weight_decay": 0.0, "amsgrad": True}], lr=0.01)

    model, alone = net(), net()
    optimizer, plain = cairn.DistributedOptimizer(make(model), model), make(alone)
    for step in range(6):
        if step == 2:
            for one, other in ((model, optimizer), (alone, plain)):
                other.add_param_group({"params": one[2].parameters(), "lr": 0.05})
        train(model, optimizer, [batch(0, step)])
        train(alone, plain, [batch(0, step)])
    assert_close(model, alone)
    assert differs(model[2], net()[2])


class Everything(nn.Module):
    """Parameters that don't lie in memory as the servers send them, scalars, empty ones."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.convolution = nn.Conv2d(3, 4, 3, padding=1).to(memory_format=torch.channels_last)
        self.transposed = nn.Parameter(torch.randn(6, 5).t())
        self.scalar = nn.Parameter(torch.tensor(0.5))
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.strided = nn.Parameter(torch.randn(8, 2)[::2])

    def forward(self, x):
        image = x.reshape(-1, 3, 2, 1).expand(-1, 3, 2, 4).to(memory_format=torch.channels_last)
        a = self.convolution(image).mean((2, 3))  # n × 4
        b = x @ self.transposed.t()  # n × 5
        out = (a @ self.strided).sum(1, keepdim=True) + b.sum(1, keepdim=True) * self.scalar
        return out + self.empty.sum()


@pytest.mark.parametrize("update", ["server", "worker"])
def test_parameters_of_every_layout(update):
    model, alone = Everything(), Everything()
    assert not model.convolution.weight.is_contiguous() and not model.transposed.is_contiguous()

    def data(rank, step):
        x, y = batch(rank, step)
        return x, y[:, :1]

    both(OPTIMIZERS["SGD momentum"], model, alone, data, update=update)
    assert model.convolution.weight.is_contiguous(memory_format=torch.channels_last)
    assert_close(model, alone)


def test_gradients_that_are_views():
    """expand() and friends: memory that a gradient shares with itself."""
    model, alone = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.ones(3, 4))
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD([model], lr=0.1))
    plain = torch.optim.SGD([alone], lr=0.1)
    for param, other in ((model, optimizer), (alone, plain)):
        param.grad = torch.tensor([1.0, 2.0, 3.0]).unsqueeze(1).expand(3, 4)
        other.step()
    assert torch.equal(model, alone)


def test_tied_parameters():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
            self.b.weight = self.a.weight
            self.out = nn.Linear(6, 3)

        def forward(self, x):
            return self.out(torch.tanh(self.b(torch.tanh(self.a(x)))))

    model, alone = Tied(), Tied()
    optimizer, _ = both(OPTIMIZERS["Adam"], model, alone)
    assert model.a.weight is model.b.weight
    assert_close(model, alone)
    assert sum(optimizer._served.groups[0].sizes) == 6 * 6 + 6 + 6 + 18 + 3  # sent once


def test_unused_and_frozen_parameters():
    make = OPTIMIZERS["AdamW"]
    model, alone = net(), net()
    before = copied(model)
    for one in (model, alone):
        one[0].bias.requires_grad_(False)
    optimizer, plain = both(make, model, alone)
    assert torch.equal(model[0].bias, before["0.bias"])  # weight decay neither
    assert_close(model, alone)
    for one in (model, alone):  # let go half-way, and another one frozen
        one[0].bias.requires_grad_(True)
        one[2].weight.requires_grad_(False)
    for step in range(6, 9):
        train(model, optimizer, [batch(0, step)])
        train(alone, plain, [batch(0, step)])
    assert_close(model, alone)
    assert optimizer.state_dict()["state"][1]["step"] == 3


def test_a_step_without_any_gradient():
    for mode in (cairn.Sync(), cairn.Async()):
        model, alone = net(), net()
        optimizer, plain = both(OPTIMIZERS["AdamW"], model, alone, mode=mode)
        for other in (optimizer, plain):
            other.zero_grad()
            other.step()
        train(model, optimizer, [batch(0, 9)])
        train(alone, plain, [batch(0, 9)])
        assert_close(model, alone)


def test_accumulated_gradients():
    model, alone = net(), net()
    optimizer = cairn.DistributedOptimizer(OPTIMIZERS["Adam"](model.parameters()), model)
    plain = OPTIMIZERS["Adam"](alone.parameters())
    for step in range(0, 6, 2):
        for one, other in ((model, optimizer), (alone, plain)):
            other.zero_grad(set_to_none=False)
            backward(one, batch(0, step))
            backward(one, batch(0, step + 1))
            other.step()
    assert_close(model, alone)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters(dtype):
    """The servers keep float32: small steps add up that would be lost in the parameter itself."""
    param = nn.Parameter(torch.ones(5, dtype=dtype))
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1e-4))
    for step in range(100):
        param.grad = torch.ones(5, dtype=dtype)
        optimizer.step()
    assert param.dtype == dtype
    assert torch.equal(param.detach(), torch.full((5,), 0.99).to(dtype))
    plain = nn.Parameter(torch.ones(5, dtype=dtype))
    plain.grad = torch.ones(5, dtype=dtype)
    torch.optim.SGD([plain], lr=1e-4).step()
    assert bool((plain == 1).all())  # torch alone gets nowhere


def test_a_model_of_nothing_but_half_precision_trains():
    model = net().to(torch.bfloat16)
    optimizer = cairn.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), model)
    x, y = (t.to(torch.bfloat16) for t in batch(0, 0))
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        losses.append(backward(model, (x, y)).item())
        optimizer.clip_grad_norm_(1.0)
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
    assert all(t.dtype == torch.bfloat16 for t in tensors_of(model).values())


def test_samples_do_not_matter_alone():
    model, alone = net(), net()
    optimizer = cairn.DistributedOptimizer(OPTIMIZERS["Adam"](model.parameters()), model)
    plain = OPTIMIZERS["Adam"](alone.parameters())
    for step, samples in enumerate((1, 7, 1000)):
        optimizer.zero_grad()
        backward(model, batch(0, step))
        optimizer.step(samples=samples)
        train(alone, plain, [batch(0, step)])
    assert_close(model, alone)


def test_deterministic_sync():
    model, alone = net(), net()
    both(OPTIMIZERS["Adam"], model, alone, mode=cairn.Sync(deterministic=True))
    assert_close(model, alone)


def test_a_scaled_step_that_fails_leaves_nothing_to_the_next():
    model = net()
    optimizer = cairn.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), model)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(nn.functional.mse_loss(model(batch(0, 0)[0]), batch(0, 0)[1])).backward()
    model[0].weight.grad[0, 0] = float("inf")
    with torch.no_grad():
        model[0].weight.zero_()
    with pytest.raises(cairn.ParametersChangedError):
        scaler.step(optimizer)
    optimizer.push_parameters()
    optimizer.zero_grad()
    backward(model, batch(0, 1))
    before = model[0].weight.clone()
    optimizer.step()
    assert not torch.equal(model[0].weight, before)


def test_each_of_two_clips_before_a_step_finds_what_the_one_before_left():
    model, alone = net(), net()
    make = OPTIMIZERS["SGD momentum"]
    optimizer = cairn.DistributedOptimizer(make(model.parameters()), model)
    plain = make(alone.parameters())
    for step in range(2):
        norms = []
        for one, other, clip in ((model, optimizer, optimizer.clip_grad_norm_),
                                 (alone, plain, lambda limit: nn.utils.clip_grad_norm_(alone.parameters(), limit))):
            other.zero_grad()
            backward(one, batch(0, step))
            norms.append([float(clip(limit)) for limit in (0.2, 0.05)])
            other.step()
        assert norms[0] == pytest.approx(norms[1], rel=1e-5) and norms[0][1] < norms[0][0]
    assert_close(model, alone)


def test_clipping_and_amp_in_one_process():
    model, alone = net(), net()
    make = OPTIMIZERS["SGD momentum"]
    optimizer = cairn.DistributedOptimizer(make(model.parameters()), model)
    plain = make(alone.parameters())
    ours, theirs = (torch.amp.GradScaler("cpu", init_scale=2.0**8) for _ in range(2))
    for step in range(5):
        norms = []
        for one, other, scaler in ((model, optimizer, ours), (alone, plain, theirs)):
            other.zero_grad()
            x, y = batch(0, step)
            scaler.scale(nn.functional.mse_loss(one(x), y)).backward()
            if step == 2:
                one[0].weight.grad[0, 0] = float("inf")
            if step != 4:
                scaler.unscale_(other)
                norms.append(float(optimizer.clip_grad_norm_(0.2) if one is model
                                   else nn.utils.clip_grad_norm_(alone.parameters(), 0.2)))
            scaler.step(other)
            scaler.update()
        assert step in (2, 4) or norms[0] == pytest.approx(norms[1], rel=1e-5)
        assert ours.get_scale() == theirs.get_scale()
    assert_close(model, alone)
