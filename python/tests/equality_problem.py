"""The training problem of test_sync_equals_one_process.py: shared by the reference, which trains on
whole batches in one process, and by the workers, which train on their parts of them."""
import torch
import torch.nn.functional as F

STEPS = 50
BATCH = 16
MAX_NORM = 0.5  # clips in most steps

# Where an optimizer divides by the size of the gradient, rounding errors of gradients near 0 grow: an
# eps that is not tiny keeps the reference itself repeatable to 1e-6 when its sums are reordered.
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, lr_decay=0.01, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.01, eps=1e-4),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, amsgrad=True, eps=1e-4),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.005, momentum=0.5, centered=True, weight_decay=0.01,
                                             eps=1e-2),
}


def make_model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(12, 40), torch.nn.Tanh(), torch.nn.LayerNorm(40), torch.nn.Linear(40, 33),
        torch.nn.Tanh(), torch.nn.Linear(33, 5))


def batches():
    """The same for everybody; a part of a batch is a slice of it."""
    generator = torch.Generator().manual_seed(1234)
    for _ in range(STEPS):
        yield (torch.randn(BATCH, 12, generator=generator),
               torch.randint(0, 5, (BATCH,), generator=generator))


def make_scheduler(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1.0 + 0.05 * step))


def loss_of(model, x, y):
    return F.cross_entropy(model(x), y)


def parts(workers, equal):
    """Where each worker's part of a batch begins and ends."""
    if equal:
        sizes = [BATCH // workers] * workers
    else:
        sizes = {1: [16], 2: [5, 11], 4: [1, 2, 5, 8]}[workers]
    ends = [sum(sizes[: i + 1]) for i in range(workers)]
    return [(end - size, end) for size, end in zip(sizes, ends)]


def train_alone(name):
    """One process, whole batches, plain torch."""
    model = make_model(seed=100)
    optimizer = OPTIMIZERS[name](model.parameters())
    scheduler = make_scheduler(optimizer)
    norms = []
    for x, y in batches():
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)))
        optimizer.step()
        scheduler.step()
    return [p.detach().clone() for p in model.parameters()], norms
