"""Two workers: overlap=True gives what step() alone gives, bit for bit; and one runs out of data."""
import torch

import cairn
import overlap_problem as problem

torch.set_num_threads(1)
cairn.init()
rank = cairn.rank()
for kind, accumulate in (("sgd", 2), ("adam", 1)):
    found = []
    for overlap in (False, True):
        model = problem.Model()
        optimizers = problem.wrap(model, kind, cairn.Sync(), overlap)
        found.append(problem.train(model, optimizers, 10, rank, accumulate))
    for at, (plain, early) in enumerate(zip(*found)):
        assert torch.equal(plain, early), f"{kind}, {accumulate}: number {at} differs"
    print(f"ok {kind} {found[1][0][-1].item()!r}", flush=True)

model = torch.nn.Linear(4, 1)
optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                       overlap=True)
with optimizer.join():
    for _ in range(3 + 4 * rank):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
print(f"joined {[round(v, 4) for p in model.parameters() for v in p.flatten().tolist()]}", flush=True)
