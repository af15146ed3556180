"""The last worker ends first; the others call on, also for what was its."""
import torch

import cairn

cairn.init()
last = cairn.size() - 1
assert cairn.allreduce(torch.tensor([1.0]), "sum").item() == cairn.size()
if cairn.rank() == last:
    cairn.shutdown()
else:
    while cairn.allreduce(torch.tensor([1.0]), "sum").item() != last:
        pass  # it is just leaving
    print(f"mean {cairn.allreduce(torch.tensor([3.0])).item()}", flush=True)
    try:
        cairn.broadcast_object(1, root_rank=last)
    except cairn.UnavailableError as error:
        print(f"told: {error}", flush=True)
    print(f"ranks {cairn.allgather_object(cairn.rank())}", flush=True)
