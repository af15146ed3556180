"""Which steps of a table count: SparseAdam's correction and Adagrad's lr_decay show it."""
import pytest
import torch

import cairn

pytestmark = pytest.mark.usefixtures("worker")

MAKE = {
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
    "Adagrad, lr_decay": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1),
}


class Case:
    def __init__(self, name):
        self.mine = cairn.nn.Embedding(9, 3)
        self.theirs = torch.nn.Embedding(9, 3, sparse=True)
        self.theirs.load_state_dict(self.mine.state_dict())
        self.optimizer = cairn.DistributedOptimizer(MAKE[name](self.mine.parameters()), self.mine)
        self.plain = MAKE[name](self.theirs.parameters())

    def backward(self, number, torch_too=True):
        ids = torch.arange(4) + number % 5
        for module in (self.mine, self.theirs) if torch_too else (self.mine,):
            module(ids).sin().sum().backward()

    def step(self, number, **options):
        self.zero_grad()
        self.backward(number)
        self.optimizer.step(**options)
        self.plain.step()

    def zero_grad(self, **options):
        self.optimizer.zero_grad(**options)
        self.plain.zero_grad(**options)

    def compare(self):
        torch.testing.assert_close(self.mine.state_dict()["weight"], self.theirs.weight.detach(), rtol=1e-5,
                                   atol=1e-6)


@pytest.fixture(params=MAKE)
def case(request):
    return Case(request.param)


def test_a_step_without_a_gradient_does_not_count(case):
    for number in range(6):
        case.step(number)
        case.zero_grad()
        case.optimizer.step()
        case.plain.step()
    case.compare()


def test_nor_does_it_in_two_phases(case):
    for number in range(6):
        case.step(number)
        case.zero_grad()
        case.optimizer.clip_grad_norm_(1e9)
        case.optimizer.step()
    case.compare()


def test_a_clip_without_a_step_does_not_count(case):
    for number in range(6):
        case.zero_grad()
        case.backward(number + 1, torch_too=False)
        case.optimizer.clip_grad_norm_(1e9)  # dropped: the next one is of other gradients
        case.zero_grad()
        case.backward(number)
        case.optimizer.clip_grad_norm_(1e9)
        case.optimizer.step()
        case.plain.step()
    case.compare()


def test_the_end_of_a_join_does_not_count(case):
    for _ in range(3):
        with case.optimizer.join():
            for number in range(3):
                case.step(number)
    case.compare()


def test_a_skipped_step_does_not_count(case):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1000)
    for number in range(6):
        case.zero_grad()
        ids = torch.arange(4) + number % 5
        bad = torch.inf if number % 2 else 1.0
        scaler.scale(case.mine(ids).sin().sum() * bad).backward()
        scaler.step(case.optimizer)
        scaler.update()
        if number % 2 == 0:
            case.theirs(ids).sin().sum().backward()
            case.plain.step()
    case.compare()


def test_zeros_that_zero_grad_leaves_are_no_gradient(case):
    for number in range(4):
        case.step(number)
        case.optimizer.zero_grad(set_to_none=False)
        case.optimizer.step()
    case.compare()


def test_a_step_of_no_weight_does_not_count(case):
    for number in range(4):
        case.step(number, samples=2)
        case.zero_grad()
        case.backward(number, torch_too=False)
        case.optimizer.step(samples=0)
    case.compare()


def test_a_hook_on_a_table_is_refused():
    table = cairn.nn.Embedding(9, 3)
    for register in (table.table.register_hook, table.table.register_post_accumulate_grad_hook):
        with pytest.raises(RuntimeError, match="would never run"):
            register(lambda gradient: gradient)


def test_a_second_module_with_padding_leaves_trained_rows_alone():
    first = cairn.nn.Embedding(9, 3, name="shared by two")
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(first.parameters(), lr=0.1), first)
    first(torch.tensor([0, 1])).sum().backward()
    optimizer.step()
    trained = first(torch.tensor([0])).detach()
    second = cairn.nn.Embedding(9, 3, padding_idx=0, name="shared by two")
    assert torch.equal(first(torch.tensor([0])), trained) and torch.equal(second(torch.tensor([0])), trained)
    optimizer.step()


def test_ids_that_numpy_changes_after_prefetch_are_noticed():
    table = cairn.nn.Embedding(9, 3)
    batches = [torch.tensor([1, 2]), torch.tensor([3, 4])]
    for ids in cairn.prefetch(batches, lambda ids: {table: ids}):
        ids.numpy()[:] = 7
        assert torch.equal(table(ids), table(torch.tensor([7, 7])))
