"""accelerate's loop. Arguments: which sampler, and "plain" to leave the accelerator as it is."""
import sys

import accelerate
import torch
from torch.utils.data import DataLoader

import cairn
import cairn.compat.accelerate
from trainers.problem import BATCH, CLIP, EPOCHS, Data, Net, judge, sgd

sampler, adapts = sys.argv[1], sys.argv[2:] != ["plain"]
cairn.init()
accelerator = accelerate.Accelerator(cpu=True)
if adapts:
    cairn.compat.accelerate.adapt(accelerator)
data, model = Data(), Net(cairn.rank())
optimizer = cairn.DistributedOptimizer(sgd(model), model)
dealt = cairn.data.Sampler(data) if sampler == "cairn" else None
loader = DataLoader(data, batch_size=BATCH, sampler=dealt, shuffle=dealt is None)
net, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(EPOCHS):
    if dealt is not None:
        dealt.set_epoch(epoch)
    for batch in loader:
        with accelerator.accumulate(net):
            optimizer.zero_grad()
            accelerator.backward(net(**batch)["loss"])
            if accelerator.sync_gradients:
                norm = accelerator.clip_grad_norm_(net.parameters(), CLIP)
                assert norm > 0
            optimizer.step()
judge(accelerator.unwrap_model(net), data)
accelerator.end_training()
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
