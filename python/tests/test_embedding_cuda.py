"""Tables in models on a GPU: rows go to the handle's device, gradients come from there. In one
process, on an embedded cluster; plain torch on the same GPU is the comparison."""
import pytest
import torch
from torch import nn

import cairn
from embedding_problems import Pair

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="NO GPU: the CUDA paths of cairn.nn are NOT TESTED on this machine")

ROWS, DIM = 30, 5
IDS = torch.tensor([1, 2, 1, 29, 3, 0])


@pytest.mark.parametrize("where", ["cpu", "cuda"])
@pytest.mark.parametrize("scaled", [False, True])
def test_forward_and_backward_equal_torch(where, scaled):
    pair = Pair(False, None, DIM, 2, rows=ROWS, scale_grad_by_freq=scaled)
    pair.mine.cuda()
    pair.torch.cuda()
    out = pair.mine(IDS.to(where))
    assert out.is_cuda and torch.equal(out, pair.torch(IDS.cuda()))
    for module in (pair.mine, pair.torch):
        module(IDS.cuda()).sin().sum().backward()
    assert pair.mine.table.grad.is_cuda and pair.mine.table.rows_of.filed()[1].is_cpu
    pair.torch.cpu()  # its gradient too
    pair.check_gradient(IDS)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_equal_torch(mode):
    pair = Pair(True, None, DIM, 2, rows=ROWS, mode=mode)
    pair.mine.cuda()
    pair.torch.cuda()
    offsets = torch.tensor([0, 2, 2])
    out = pair.mine(IDS, offsets)
    torch.testing.assert_close(out, pair.torch(IDS.cuda(), offsets.cuda()))
    out.sin().sum().backward()
    pair.torch(IDS.cuda(), offsets.cuda()).sin().sum().backward()
    pair.torch.cpu()  # its gradient too
    pair.check_gradient(IDS)


def test_the_gradient_moves_with_the_module():
    table = cairn.nn.Embedding(None, DIM)
    table(IDS).sum().backward()
    table.cuda()
    table(IDS).sum().backward()
    assert table.table.grad.is_cuda and table.table.grad.shape == (5, DIM)
    table.cpu()
    assert table.table.grad.is_cpu


def test_torchs_default_device():
    with torch.device("cuda"):
        table = cairn.nn.Embedding(ROWS, DIM, padding_idx=2)
        out = table(torch.tensor([1, 2]))
        out.sum().backward()
    assert out.is_cuda and table.table.rows_of.filed()[0].tolist() == [1]


class Model(nn.Module):
    def __init__(self, rows):
        super().__init__()
        torch.manual_seed(0)
        self.rows, self.top = rows, nn.Linear(DIM, 2)

    def forward(self, ids):
        return self.top(self.rows(ids)).tanh()


@pytest.mark.parametrize("mode", [cairn.Sync(), cairn.Async()], ids=["sync", "async"])
@pytest.mark.parametrize("ahead", [False, True])
def test_training_equals_torch(worker, mode, ahead):
    mine = Model(cairn.nn.Embedding(ROWS, DIM)).cuda()
    alone = Model(nn.Embedding(ROWS, DIM)).cuda()
    alone.load_state_dict(mine.state_dict())
    sgd = torch.optim.SGD(mine.parameters(), lr=0.3)
    optimizer = cairn.DistributedOptimizer(sgd, mine, mode=mode)
    plain = torch.optim.SGD(alone.parameters(), lr=0.3)
    batches = [torch.randint(0, ROWS, (9,), generator=torch.Generator().manual_seed(i))
                             for i in range(10)]
    for ids in cairn.prefetch(batches, lambda b: {mine.rows: b}) if ahead else batches:
        for model, opt in ((mine, optimizer), (alone, plain)):
            opt.zero_grad()
            model(ids.cuda()).sum().backward()
            opt.step()
    for (name, a), b in zip(mine.state_dict().items(), alone.state_dict().values()):
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=1e-4, atol=1e-5, msg=name)


def test_amp_under_a_grad_scaler(worker):
    mine = Model(cairn.nn.Embedding(ROWS, DIM)).cuda()
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(mine.parameters(), lr=0.3), mine)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
    for step in range(4):
        optimizer.zero_grad()
        before = mine.rows.state_dict()["weight"]
        with torch.autocast("cuda", dtype=torch.float16):
            loss = mine(IDS.cuda()).sum()
        scaler.scale(loss * (torch.inf if step == 2 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(mine.rows.state_dict()["weight"], before) == (step == 2)
