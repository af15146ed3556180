"""LeNet-5 on MNIST. The lines that make it distributed are marked with  # cairn.

    python examples/mnist_lenet.py                          one process, the cluster inside it
    cairn run -s 2 -w 2 examples/mnist_lenet.py             2 servers and 2 workers
    torchrun --nproc-per-node 2 examples/mnist_lenet.py     the first worker hosts the cluster

script/demo does all of it, from installing to this file.
"""
import argparse

import mnist_idx
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import cairn


def lenet5():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )


def accuracy(model, data):
    model.eval()
    with torch.no_grad():
        loader = DataLoader(data, batch_size=1000)
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(data)


def plot(path, losses):
    try:
        import matplotlib
    except ImportError:
        print("no loss curve: matplotlib is missing (pip install matplotlib)")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    steps = range(1, len(losses) + 1)
    smooth = torch.tensor(losses).unfold(0, min(20, len(losses)), 1).mean(1)
    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot(steps, losses, alpha=0.25, label="each step")
    axes.plot(steps[-len(smooth):], smooth, label="mean of 20 steps")
    axes.set(xlabel="step", ylabel="loss of worker 0", title="LeNet-5 on MNIST", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"loss curve: {path}")


def arguments():
    parser = argparse.ArgumentParser(description="LeNet-5 on MNIST")
    parser.add_argument("--data", help="folder of the IDX files (script/fetch-mnist's)")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32, help="of each worker")
    parser.add_argument("--lr", type=float, default=0.02, help="a tenth of it in the next epoch")
    parser.add_argument("--mode", choices=["sync", "async"], default="sync")
    parser.add_argument("--limit", type=int, help="train on the first so many samples only")
    parser.add_argument("--every", type=int, default=100, help="steps between two lines of output")
    parser.add_argument("--exact", action="store_true",
                        help="sums in one order (the run repeats bit for bit), losses in full")
    parser.add_argument("--plot", metavar="FILE", help="the loss of worker 0 as a PNG")
    return parser.parse_args()


def main():
    options = arguments()
    torch.manual_seed(1)
    where = mnist_idx.folder(options.data)
    train = TensorDataset(*mnist_idx.load(where, "train", options.limit))

    cairn.init()                                                                         # cairn
    model = lenet5()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    sync = cairn.Sync(deterministic=options.exact)                                       # cairn
    mode = sync if options.mode == "sync" else cairn.Async()                             # cairn
    optimizer = cairn.DistributedOptimizer(optimizer, model, mode=mode)                  # cairn
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    sampler = cairn.data.Sampler(train)                                                  # cairn
    loader = DataLoader(train, batch_size=options.batch_size, sampler=sampler)

    losses = []
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)                                                         # cairn
        with optimizer.join():                                                           # cairn
            for step, (x, y) in enumerate(loader):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                if step % options.every == 0:
                    shown = repr(losses[-1]) if options.exact else f"{losses[-1]:.4f}"
                    print(f"epoch: {epoch + 1} step: {step + 1}, loss is {shown}")
        scheduler.step()

    cairn.barrier()                                                                      # cairn
    if cairn.rank() == 0:                                                                # cairn
        optimizer.pull()                                                                 # cairn
        if options.plot and losses:
            plot(options.plot, losses)
        test = TensorDataset(*mnist_idx.load(where, "t10k"))
        print(f"test accuracy: {accuracy(model, test):.4f}")


if __name__ == "__main__":
    main()
