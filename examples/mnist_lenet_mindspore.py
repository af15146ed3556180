"""LeNet-5 on MNIST, started as in MindSpore's parameter server tutorial: the same script in three
roles, in any order, with MS_ROLE saying which. docs/guide/migrating/mindspore.md goes through it.

    export MS_SERVER_NUM=1 MS_WORKER_NUM=1 MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=8118
    MS_ROLE=MS_SCHED   python examples/mnist_lenet_mindspore.py > scheduler.log 2>&1 &
    MS_ROLE=MS_PSERVER python examples/mnist_lenet_mindspore.py > server.log 2>&1 &
    MS_ROLE=MS_WORKER  python examples/mnist_lenet_mindspore.py > worker.log 2>&1 &
"""
import argparse

import mnist_idx
import torch
import torch.nn.functional as F
from mnist_lenet import accuracy, lenet5
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from cairn.compat.mindspore import context, distributed_optimizer
from cairn.compat.mindspore.communication.management import get_group_size, get_rank, init
from cairn.compat.mindspore.train.callback import LossMonitor


def arguments():
    parser = argparse.ArgumentParser(description="LeNet-5 on MNIST, MindSpore's way")
    parser.add_argument("--device_target", choices=["CPU", "GPU", "Ascend"], default="CPU")
    parser.add_argument("--data_path", help="folder of the IDX files (script/fetch-mnist's)")
    parser.add_argument("--epoch_size", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=32, help="of each worker")
    parser.add_argument("--lr", type=float, default=0.02, help="a tenth of it in the next epoch")
    parser.add_argument("--limit", type=int, help="train on the first so many samples only")
    parser.add_argument("--per_print_times", type=int, default=1)
    return parser.parse_args()


def device_for(target):
    """MindSpore's name of a device, as PyTorch knows it. Where there is none, the script says what it
    does instead."""
    if target == "GPU" and torch.cuda.is_available():
        return "cuda"
    if target == "GPU":
        print("--device_target=GPU: PyTorch finds no GPU here, this worker trains on the CPU", flush=True)
    if target == "Ascend":
        print("--device_target=Ascend: PyTorch knows Ascend only through torch_npu, with which Cairn has not been "
              "tried; this worker trains on the CPU", flush=True)
    return "cpu"


def main():
    args = arguments()
    context.set_ps_context(enable_ps=True)  # the scheduler and the servers stay in this line
    init()
    device = device_for(args.device_target)
    torch.manual_seed(1)
    where = mnist_idx.folder(args.data_path)
    train = TensorDataset(*mnist_idx.load(where, "train", args.limit))
    sampler = DistributedSampler(train, num_replicas=get_group_size(), rank=get_rank(), seed=1)
    loader = DataLoader(train, batch_size=args.batch_size, sampler=sampler)

    network = lenet5().to(device)
    network.set_param_ps()
    optimizer = torch.optim.SGD(network.parameters(), lr=args.lr, momentum=0.9)
    optimizer = distributed_optimizer(optimizer, network)  # the line that MindSpore does not need
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    monitor = LossMonitor(args.per_print_times)

    for epoch in range(args.epoch_size):
        sampler.set_epoch(epoch)
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(network(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            monitor(epoch + 1, step + 1, loss)
        scheduler.step()

    if get_rank() == 0:
        test = TensorDataset(*mnist_idx.load(where, "t10k"))
        print(f"test accuracy: {accuracy(network.cpu(), test):.4f}")


if __name__ == "__main__":
    main()
