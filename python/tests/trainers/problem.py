"""What the scripts of check_trainers.py train, and how they judge it: from the samples that each worker
used, in the order in which it used them, plain torch trains the same model in one process."""
import torch
from torch import nn

import cairn

SAMPLES, BATCH, EPOCHS, RATE, CLIP = 64, 4, 2, 0.1, 0.5


class Data(torch.utils.data.Dataset):
    """Notes which samples it is asked for."""

    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(SAMPLES, 6, generator=generator)
        self.y = torch.randint(0, 3, (SAMPLES,), generator=generator)
        self.used = []

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        self.used.append(int(index))
        return {"x": self.x[index], "labels": self.y[index]}


class Net(nn.Module):
    """Its initial values differ between the workers, so that the root's must reach the others."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x, labels):
        return {"loss": nn.functional.cross_entropy(self.layers(x), labels)}


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)


def judge(model, data, *, clipped=True):
    """Every sample was used once an epoch, by all workers together, and the model is that of one process
    on the combined batches."""
    used = cairn.allgather_object(data.used)
    steps = [[part[at:at + BATCH] for part in used] for at in range(0, max(map(len, used)), BATCH)]
    each = SAMPLES // len(used)
    for epoch in range(EPOCHS):
        seen = [index for part in used for index in part[epoch * each:(epoch + 1) * each]]
        assert sorted(seen) == list(range(SAMPLES)), f"epoch {epoch}: {sorted(seen)}"
    assert all(len(part) == EPOCHS * each for part in used), [len(part) for part in used]
    alone = Net(0)
    plain = sgd(alone)
    for batches in steps:
        plain.zero_grad()
        losses = [alone(data.x[batch], data.y[batch])["loss"] for batch in batches]
        torch.stack(losses).mean().backward()
        if clipped:
            nn.utils.clip_grad_norm_(alone.parameters(), CLIP)
        plain.step()
    for name, expected in alone.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], expected, rtol=1e-4, atol=1e-5)
    print(f"trained {len(steps)} steps on {len(used)} workers", flush=True)
