"""Small models, data and comparisons for the tests of DistributedOptimizer: alike in every process,
so that each worker can work out by itself what one process would have got from all the data."""
import hashlib

import torch
from torch import nn
from torch.nn import functional as F

import cairn

INPUTS, OUTPUTS, SAMPLES = 6, 3, 4
TOLERANCE = 1e-5


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, OUTPUTS))


def norm_net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(INPUTS, 5), nn.BatchNorm1d(5), nn.Linear(5, OUTPUTS))


def batch(rank, step, samples=SAMPLES):
    generator = torch.Generator().manual_seed(1 + 1000 * rank + step)
    return (torch.randn(samples, INPUTS, generator=generator),
            torch.randn(samples, OUTPUTS, generator=generator))


def whole(step, sizes=(SAMPLES, SAMPLES)):
    """The batches of all ranks as one."""
    xs, ys = zip(*(batch(rank, step, size) for rank, size in enumerate(sizes)))
    return torch.cat(xs), torch.cat(ys)


def loss_of(model, data):
    x, y = data
    return F.mse_loss(model(x), y)


def backward(model, data):
    loss = loss_of(model, data)
    loss.backward()
    return loss


def train(model, optimizer, data):
    """One step on each of the batches."""
    for one in data:
        optimizer.zero_grad()
        backward(model, one)
        optimizer.step()


def tensors_of(model):
    """Of a model, or of what is a list of tensors already."""
    if not isinstance(model, nn.Module):
        return {str(i): t.detach() for i, t in enumerate(model)}
    try:
        return {n: t.detach() for n, t in model.state_dict().items()}
    except cairn.Error:  # nothing but unbounded tables: there is nothing to save
        return {}


def copied(model):
    return {n: t.clone() for n, t in tensors_of(model).items()}


def assert_close(model, expected, tolerance=TOLERANCE):
    """Per tensor, by its norm."""
    got, want = tensors_of(model), tensors_of(expected)
    assert got.keys() == want.keys()
    for name, b in want.items():
        a, b = got[name].double(), b.double()
        distance, size = float((a - b).norm()), float(b.norm())
        assert distance <= tolerance * size + 1e-8, f"{name} is {distance:.3g} from {size:.3g}"


def assert_same(model, expected):
    """Bit for bit. `expected` may be what `copied` gave."""
    want = expected if isinstance(expected, dict) else tensors_of(expected)
    for name, tensor in tensors_of(model).items():
        assert torch.equal(tensor, want[name]), name


def differs(model, other):
    want = other if isinstance(other, dict) else tensors_of(other)
    return any(not torch.equal(t, want[n]) for n, t in tensors_of(model).items())


def digest(model):
    """Equal on two workers only if all of their tensors are, bit for bit."""
    sha = hashlib.sha256()
    for tensor in tensors_of(model).values():
        sha.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:16]
