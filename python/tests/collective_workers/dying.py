"""A worker dies while the others wait for it in a collective call, and comes back. Arguments: a folder,
the rank of the victim, and when it dies."""
import os
import pathlib
import signal
import sys

import torch

import cairn
from cairn._allreduce.exchange import Exchange

folder, victim, when = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
cairn.init()
rank = cairn.rank()
mark = folder / "died"
restarted = rank == victim and mark.exists()


def die(*_):
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)


number = 0
while True:
    number += 1
    if rank == victim and not restarted and number == 4:
        if when == "before":
            die()
        Exchange.sum = die  # when all know of the call, and before anything is summed
    total = cairn.allreduce(torch.tensor([1.0, float(restarted)]), "sum").tolist()
    print(f"total {total[0]:.0f}", flush=True)
    if total[1] > 0:  # the same on all of them: it is back
        break
print(f"ranks {cairn.allgather_object(rank)}", flush=True)
print(f"heard {cairn.broadcast_object({'from': rank}, root_rank=victim)}", flush=True)
