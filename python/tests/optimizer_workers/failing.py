"""A worker that fails in the middle of training, while the other one waits for it in a step."""
import torch

import cairn
from optimizer_workers.problems import batch, net, train

torch.set_num_threads(1)
cairn.init()
model = net()
optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
for step in range(1000):
    if cairn.rank() == 1 and step == 3:
        raise ValueError("this batch is spoilt")
    train(model, optimizer, [batch(cairn.rank(), step)])
