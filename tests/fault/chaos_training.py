"""A training as a load of script/chaos: one worker's process. LeNet or the click model of examples/, in
deterministic sync rounds, so that it repeats bit for bit whatever happens to servers and schedulers.

Writes the loss of each step to DIR/losses-RANK (doubles), and at the end of rank 0 what the model answers
to samples that it has not seen to DIR/answer. Ends after --steps; or, once the file --until is there, a few
steps later, and the same for all: rank 0 writes to DIR/last which one is the last. No rank is more than a
step ahead of another one, so all of them see it in time."""
import argparse
import os
import pathlib
import struct
import sys
import time

import torch
import torch.nn.functional as F

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
import cairn  # noqa: E402

BATCH = 16
STEPS_TO_TELL = 10


class LeNet:
    def __init__(self):
        import mnist_lenet
        self.model = mnist_lenet.lenet5()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)

    @staticmethod
    def batch(seed):
        chance = torch.Generator().manual_seed(seed)
        return torch.randn(BATCH, 1, 28, 28, generator=chance), torch.randint(10, (BATCH,), generator=chance)

    def loss(self, images, labels):
        return F.cross_entropy(self.model(images), labels)

    def answer(self, images, _labels):
        return self.model(images)


class Clicks:
    SAMPLES = 20_000

    def __init__(self):
        import ctr
        import synthetic_clicks
        self.model = ctr.ClickModel(ctr.click_table(local=False), hidden=64)
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=0.02)
        self.samples = synthetic_clicks.make(self.SAMPLES, "train")[:3]

    def batch(self, seed):
        which = torch.randint(self.SAMPLES, (BATCH,), generator=torch.Generator().manual_seed(seed))
        return tuple(part[which] for part in self.samples)

    def loss(self, floats, ids, labels):
        return F.binary_cross_entropy_with_logits(self.model(floats, ids), labels)

    def answer(self, floats, ids, _labels):
        return self.model(floats, ids)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", choices=["lenet", "ctr"], required=True)
    parser.add_argument("--dir", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--until", type=pathlib.Path)
    parser.add_argument("--pause-ms", type=float, default=0)
    return parser.parse_args()


def last_step(options, rank, step):
    """The number of the last step, if it is known."""
    if options.steps is not None:
        return options.steps
    told = options.dir / "last"
    if rank == 0 and options.until.exists() and not told.exists():
        (options.dir / "last.new").write_text(str(step + STEPS_TO_TELL))
        (options.dir / "last.new").rename(told)
    return int(told.read_text()) if told.exists() else None


def main():
    options = arguments()
    options.dir.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    cairn.init()
    rank = cairn.rank()
    training = {"lenet": LeNet, "ctr": Clicks}[options.load]()
    optimizer = cairn.DistributedOptimizer(training.optimizer, training.model, mode=cairn.Sync(deterministic=True))
    losses = os.open(options.dir / f"losses-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    step = 0
    while (last := last_step(options, rank, step)) is None or step < last:
        step += 1
        batch = training.batch(1000 * step + rank)
        optimizer.zero_grad()
        loss = training.loss(*batch)
        loss.backward()
        optimizer.step()
        os.write(losses, struct.pack("<d", loss.item()))
        time.sleep(options.pause_ms / 1000)  # the load that was asked for
    cairn.barrier()
    if rank == 0:
        optimizer.pull()
        training.model.eval()
        with torch.no_grad():
            answer = training.answer(*training.batch(999))
        (options.dir / "answer").write_text(" ".join(value.hex() for value in answer.flatten().tolist()))
    cairn.barrier()


if __name__ == "__main__":
    main()
