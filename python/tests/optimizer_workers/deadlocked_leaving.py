"""deadlocked_leaving.py: rank 1 ends with its part of a round given, which rank 0, in a barrier, never gives."""
import torch

import cairn

torch.set_num_threads(1)
cairn.init()
table = cairn.dense_table("w", 10, mode=cairn.Sync(), optimizer="sgd")
if cairn.rank() == 1:
    pending = table.push(torch.ones(10), lr=0.1)  # not awaited: leaving waits for it
else:
    cairn.barrier()
