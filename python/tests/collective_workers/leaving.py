"""A worker ends before the others; they call on, also for what was its. Argument: its rank."""
import sys

import torch

import cairn

cairn.init()
leaves, left = int(sys.argv[1]), cairn.size() - 1
assert cairn.allreduce(torch.tensor([1.0]), "sum").item() == cairn.size()
if cairn.rank() == leaves:
    cairn.shutdown()
else:
    while cairn.allreduce(torch.tensor([1.0]), "sum").item() != left:
        pass  # it is just leaving
    print(f"mean {cairn.allreduce(torch.tensor([3.0])).item()}", flush=True)
    try:
        cairn.broadcast_object(1, root_rank=leaves)
    except cairn.UnavailableError as error:
        print(f"told: {error}", flush=True)
    print(f"ranks {cairn.allgather_object(cairn.rank())}", flush=True)
    for root in set(range(cairn.size())) - {leaves}:
        print(f"heard {cairn.broadcast_object(f'from {cairn.rank()}', root_rank=root)}", flush=True)
