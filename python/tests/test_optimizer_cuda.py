"""DistributedOptimizer over CUDA tensors: the same interface, staged through pinned memory. In one
process, on an embedded cluster; plain torch on the same GPU is the comparison."""
import pytest
import torch
from torch import nn

import cairn
from optimizer_workers.problems import assert_close, batch, copied, differs, net, norm_net, tensors_of, train

pytestmark = [
    pytest.mark.usefixtures("worker"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="NO GPU: the CUDA paths of "
                       "DistributedOptimizer are NOT TESTED on this machine"),
]

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-4),
    "Adam fused": lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-4, fused=True),
}
MODES = {"sync": {}, "async": {"mode": cairn.Async()}, "worker": {"update": "worker"}}


@pytest.fixture(autouse=True)
def exact_products():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def on_gpu(step, rank=0):
    return tuple(t.cuda() for t in batch(rank, step))


def on_cpu(model):
    return [t.detach().cpu() for t in tensors_of(model).values()]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_equals_torch_on_the_gpu(name, options):
    model, alone = net().cuda(), net().cuda()
    optimizer = cairn.DistributedOptimizer(OPTIMIZERS[name](model.parameters()), model, **options)
    plain = OPTIMIZERS[name](alone.parameters())
    for step in range(8):
        train(model, optimizer, [on_gpu(step)])
        train(alone, plain, [on_gpu(step)])
    assert all(p.is_cuda for p in model.parameters())
    assert_close(on_cpu(model), on_cpu(alone), tolerance=2e-5)


def test_gradients_are_taken_from_the_current_stream_and_parameters_are_ready_on_it():
    """A gradient that is still being computed when step() is called, on a stream of its own; and
    the parameters are read on it right afterwards."""
    stream = torch.cuda.Stream()
    param = nn.Parameter(torch.zeros(1 << 20, device="cuda"))
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1.0))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        total = torch.zeros_like(param)
        for step in range(1, 6):
            grad = torch.zeros_like(param)
            torch.cuda._sleep(50_000_000)  # some 25 ms
            grad += step
            param.grad = grad
            optimizer.step()
            total += param.detach()  # enqueued behind the copy into it
        result = total.clone()
    stream.synchronize()
    expected = -float(sum(sum(range(1, n + 1)) for n in range(1, 6)))
    assert torch.equal(result.cpu(), torch.full((1 << 20,), expected))


def test_staged_memory_is_pinned_and_used_again():
    model = net().cuda()
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    train(model, optimizer, [on_gpu(0)])
    group = optimizer._served.groups[0]

    def all_staged():
        return [*group._gradients._staging.values(), *group._values._staging.values()]

    staged = all_staged()
    assert len(staged) == 2 * len(list(model.parameters()))
    assert all(s.is_pinned() for s in staged)
    addresses = [s.data_ptr() for s in staged]
    train(model, optimizer, [on_gpu(1)])
    assert addresses == [s.data_ptr() for s in all_staged()]


def test_steps_in_a_row_do_not_overtake_each_other():
    """The copy of one step into the parameters may still wait behind other work when the next step
    receives its values into the same pinned memory."""
    param = nn.Parameter(torch.zeros(1 << 16, device="cuda"))
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1.0))
    seen = []
    for step in range(20):
        param.grad = torch.ones_like(param)
        optimizer.step()
        torch.cuda._sleep(2_000_000)
        seen.append(param.detach().clone())
    for step, values in enumerate(seen):
        assert torch.equal(values.cpu(), torch.full((1 << 16,), -float(step + 1))), step


def test_amp_and_clipping():
    model, alone = net().cuda(), net().cuda()
    make = OPTIMIZERS["SGD"]
    optimizer = cairn.DistributedOptimizer(make(model.parameters()), model)
    plain = make(alone.parameters())
    ours, theirs = (torch.amp.GradScaler("cuda", init_scale=2.0**8) for _ in range(2))
    for step in range(6):
        before = copied(model)
        for one, other, scaler in ((model, optimizer, ours), (alone, plain, theirs)):
            other.zero_grad()
            x, y = on_gpu(step)
            with torch.autocast("cuda", torch.float16):
                out = one(x)
            scaler.scale(nn.functional.mse_loss(out.float(), y)).backward()
            if step == 2:
                one[0].weight.grad[0, 0] = float("inf")
            if step % 2:
                scaler.unscale_(other)
                if one is model:
                    norm = float(optimizer.clip_grad_norm_(0.2))
                else:
                    wanted = float(nn.utils.clip_grad_norm_(alone.parameters(), 0.2))
                    assert norm == pytest.approx(wanted, rel=1e-3)
            scaler.step(other)
            scaler.update()
        assert differs(model, before) == (step != 2)
        assert ours.get_scale() == theirs.get_scale()
    assert_close(on_cpu(model), on_cpu(alone), tolerance=1e-3)  # products in float16


def test_state_dict_is_on_the_gpu_and_goes_on_in_torch():
    model, alone = net().cuda(), net().cuda()
    make = OPTIMIZERS["Adam"]
    optimizer = cairn.DistributedOptimizer(make(model.parameters()), model)
    plain = make(alone.parameters())
    for step in range(3):
        train(model, optimizer, [on_gpu(step)])
        train(alone, plain, [on_gpu(step)])
    state = optimizer.state_dict()
    for index, entry in plain.state_dict()["state"].items():
        for key, value in entry.items():
            assert state["state"][index][key].device == value.device, key
    alone.load_state_dict(model.state_dict())
    plain.load_state_dict(state)
    for step in range(3, 6):
        train(model, optimizer, [on_gpu(step)])
        train(alone, plain, [on_gpu(step)])
    assert_close(on_cpu(model), on_cpu(alone), tolerance=2e-5)
    optimizer.load_state_dict(plain.state_dict())
    train(model, optimizer, [on_gpu(6)])
    train(alone, plain, [on_gpu(6)])
    assert_close(on_cpu(model), on_cpu(alone), tolerance=2e-5)


def test_a_model_on_two_devices():
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = net()
            self.layers[0].cuda()

        def forward(self, x):
            return self.layers[2](torch.tanh(self.layers[0](x.cuda()).cpu()))

    model, alone = Split(), Split()
    make = OPTIMIZERS["SGD"]
    optimizer = cairn.DistributedOptimizer(make(model.parameters()), model)
    plain = make(alone.parameters())
    for step in range(4):
        train(model, optimizer, [batch(0, step)])
        train(alone, plain, [batch(0, step)])
    assert_close(on_cpu(model), on_cpu(alone), tolerance=2e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters(dtype):
    param = nn.Parameter(torch.ones(5, dtype=dtype, device="cuda"))
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1e-4))
    for _ in range(100):
        param.grad = torch.ones(5, dtype=dtype, device="cuda")
        optimizer.step()
    assert torch.equal(param.detach().cpu(), torch.full((5,), 0.99).to(dtype))


def test_buffers_on_the_gpu_and_writes_from_outside():
    model = norm_net().cuda()
    optimizer = cairn.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), model)
    train(model, optimizer, [on_gpu(step) for step in range(3)])
    assert model[1].running_mean.is_cuda and bool(model[1].running_mean.any())
    with torch.no_grad():
        model[0].weight.clamp_(-0.1, 0.1)
    written = copied(model)
    with pytest.raises(cairn.ParametersChangedError, match="push_parameters"):
        optimizer.step()
    optimizer.push_parameters()
    for name, tensor in tensors_of(model).items():
        assert torch.equal(tensor, written[name]), name
    train(model, optimizer, [on_gpu(3)])


def test_not_a_number_on_the_gpu_is_named():
    model = net().cuda()
    optimizer = cairn.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), model)
    nn.functional.mse_loss(*(model(on_gpu(0)[0]), on_gpu(0)[1])).backward()
    model[2].bias.grad[0] = float("nan")
    with pytest.raises(cairn.NotFiniteError, match=r"2\.bias is NaN"):
        optimizer.step()
