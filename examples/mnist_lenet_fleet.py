"""LeNet-5 on MNIST, started as in Paddle's parameter server tutorial: the same script as 2 servers
and 2 trainers, in any order, with TRAINING_ROLE saying which. docs/guide/migrating/paddle.md goes
through it.

    export PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:36000,127.0.0.1:36001 PADDLE_TRAINERS_NUM=2
    run="python -u examples/mnist_lenet_fleet.py --is_cloud=1"
    TRAINING_ROLE=PSERVER POD_IP=127.0.0.1 PADDLE_PORT=36000 $run &
    TRAINING_ROLE=PSERVER POD_IP=127.0.0.1 PADDLE_PORT=36001 $run &
    TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=0 $run &
    TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=1 $run

With --is_cloud=0 the script says itself who it is: --role, --id, --endpoints and --trainers.
"""
import argparse

import mnist_idx
import torch
import torch.nn.functional as F
from mnist_lenet import accuracy, lenet5
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from cairn.compat import fleet
from cairn.compat.fleet import StrategyFactory, role_maker


def arguments():
    parser = argparse.ArgumentParser(description="LeNet-5 on MNIST, Paddle's way")
    parser.add_argument("--is_cloud", type=int, choices=[0, 1], default=1)
    parser.add_argument("--role", choices=["pserver", "trainer"], default="trainer")
    parser.add_argument("--id", type=int, default=0)
    parser.add_argument("--endpoints", default="127.0.0.1:36000", help="of the servers")
    parser.add_argument("--trainers", type=int, default=1)
    parser.add_argument("--strategy", choices=["sync", "async", "half_async"], default="sync")
    parser.add_argument("--data", help="folder of the IDX files (script/fetch-mnist's)")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=32, help="of each trainer")
    parser.add_argument("--lr", type=float, default=0.02, help="a tenth of it in the next epoch")
    parser.add_argument("--limit", type=int, help="train on the first so many samples only")
    parser.add_argument("--every", type=int, default=100, help="steps between two lines of output")
    return parser.parse_args()


def train(args, model, optimizer):
    where = mnist_idx.folder(args.data)
    data = TensorDataset(*mnist_idx.load(where, "train", args.limit))
    sampler = DistributedSampler(data, fleet.worker_num(), fleet.worker_index(), seed=1)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            if step % args.every == 0:
                print(f"epoch: {epoch + 1} step: {step + 1}, loss is {loss.item():.4f}")
        scheduler.step()
    fleet.barrier_worker()
    if fleet.is_first_worker():
        optimizer.pull()
        test = TensorDataset(*mnist_idx.load(where, "t10k"))
        print(f"test accuracy: {accuracy(model, test):.4f}")


def main():
    args = arguments()
    if args.is_cloud:
        role = role_maker.PaddleCloudRoleMaker()
    else:
        role = role_maker.UserDefinedRoleMaker(
            current_id=args.id, worker_num=args.trainers,
            server_endpoints=args.endpoints.split(","),
            role=role_maker.Role.SERVER if args.role == "pserver" else role_maker.Role.WORKER)
    fleet.init(role)

    torch.manual_seed(1)
    model = lenet5()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    strategy = getattr(StrategyFactory, f"create_{args.strategy}_strategy")()
    optimizer = fleet.distributed_optimizer(optimizer, strategy, model)

    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()  # returns when the trainers have stopped
    if fleet.is_worker():
        fleet.init_worker()
        train(args, model, optimizer)
        fleet.stop_worker()


if __name__ == "__main__":
    main()
