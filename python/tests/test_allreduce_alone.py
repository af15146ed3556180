"""AllReduced in a process that is alone, and its parts that need no other worker."""
import copy
import gc
import types

import pytest
import torch
from torch import nn

import cairn
from allreduce_workers.driver import (
    assert_close,
    backward,
    batch,
    digest,
    make_model,
    make_optimizer,
    reduce_all,
    step,
)
from cairn._allreduce.allreduced import AllReduced
from cairn._allreduce.attempt import Attempt, Part, _summed
from cairn._allreduce.collectives import Collectives
from cairn._allreduce.control import Ballot, Control, Member, Outcome
from cairn._allreduce.group import AttemptFailed, Patience
from cairn._allreduce.update import Update, check_parameters
from cairn._runtime import context, hosting


def test_alone_it_is_plain_torch(worker):
    model, expected = make_model(3), make_model(3)
    inner, plain = make_optimizer(model), make_optimizer(expected)
    reduced = reduce_all(model, inner)
    assert reduced._control is None and reduced._group is None and reduced.joined_step is None
    for number in range(5):
        for net, optimizer in ((model, inner), (expected, plain)):
            optimizer.zero_grad()
            backward(net, *batch(number, 0))
        assert reduced.stage == "idle"
        reduced.contribute(7.0, True)  # the only one: its weight changes nothing
        assert reduced.stage == "reducing"
        pending = reduced.vote()
        assert pending.ready()
        reduced.settle(pending)
        assert reduced.stage == "settled" and reduced.info.finite
        reduced.apply()
        reduced.apply()  # once is enough
        plain.step()
    assert reduced.steps == 5
    assert digest(model, inner) == digest(expected, plain)


def test_alone_with_scales_and_without_a_gradient(worker):
    model, expected = make_model(3), make_model(3)
    inner, plain = (torch.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.1) for m in (model, expected))
    reduced = reduce_all(model, inner)
    backward(model, *batch(0, 0))
    backward(expected, *batch(0, 0))
    model[0].bias.grad = expected[0].bias.grad = None
    for p in expected.parameters():
        if p.grad is not None:
            p.grad *= 0.5 * 0.25
    reduced.contribute(2.0, True, value_scale=0.5)
    reduced.settle(reduced.vote())
    reduced.apply(scale=0.25)
    plain.step()
    assert_close(model, expected)
    assert torch.equal(model[0].bias, make_model(3)[0].bias)


def test_sums(worker):
    model = make_model(3)
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    reduced = AllReduced(list(model.parameters()), ["p"] * 6, inner, 0, reduce="sum")
    reduced.attach(context.current(), "sums")
    backward(model, *batch(0, 0))
    before, grad = model[0].weight.detach().clone(), model[0].weight.grad.clone()
    reduced.contribute(1.0)
    reduced.settle(reduced.vote())
    reduced.apply()
    torch.testing.assert_close(model[0].weight, before - grad)


def test_only_these_parameters_are_stepped_and_hooks_are_left_alone(worker):
    model = make_model(3)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks = []
    inner.register_step_pre_hook(lambda *_: hooks.append("pre"))
    torch.optim.lr_scheduler.StepLR(inner, 10)  # replaces inner.step
    reduced = AllReduced(list(model[0].parameters()), ["0.weight", "0.bias"], inner, 0)
    reduced.attach(context.current(), "some")
    backward(model, *batch(0, 0))
    listed = list(inner.param_groups[0]["params"])
    reduced.contribute(1.0)
    reduced.settle(reduced.vote())
    reduced.apply()
    fresh = make_model(3)
    assert not torch.equal(model[0].weight, fresh[0].weight)
    assert torch.equal(model[2].weight, fresh[2].weight)
    assert all(a is b for a, b in zip(inner.param_groups[0]["params"], listed)) and hooks == []


def test_sparse_gradients_are_refused(worker):
    table = nn.Embedding(5, 2, sparse=True)
    inner = torch.optim.SGD(table.parameters(), lr=0.1)
    reduced = AllReduced([table.weight], ["table.weight"], inner, 0)
    reduced.attach(context.current(), "sparse")
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(TypeError, match="the gradient of table.weight is sparse"):
        reduced.contribute(1.0)
    assert reduced.stage == "idle"


# Buckets.
def test_hooks_end_with_their_wrap_and_are_not_copied(worker):
    model = make_model(1)
    reduced = reduce_all(model, make_optimizer(model))
    copied = copy.deepcopy(model)
    buckets = reduced._buckets
    backward(copied, *batch(0, 0))
    assert buckets._fired == [0] * 6
    backward(model, *batch(0, 0))
    assert buckets._fired == [1] * 6
    del reduced, buckets
    gc.collect()
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


# Values and state for others, and whose they are.
def test_packed_state_is_taken_whole():
    models = [make_model(1), make_model(2)]
    inners = [make_optimizer(m) for m in models]
    backward(models[0], *batch(0, 0))
    inners[0].step()
    data = Update(list(models[0].parameters()), inners[0]).pack(12, True)
    assert Update(list(models[1].parameters()), inners[1]).unpack(data) == (12, True)
    assert digest(models[0], inners[0]) == digest(models[1], inners[1])
    fresh = make_model(3)
    data_of_fresh = Update(list(fresh.parameters()), make_optimizer(fresh)).pack(0, False)
    Update(list(models[1].parameters()), inners[1]).unpack(data_of_fresh)
    assert not inners[1].state, "as those of a worker that has made no step"
    small = list(models[1].parameters())[:2]
    with pytest.raises(RuntimeError, match="all-reduces 6 parameters, this one 2"):
        Update(small, inners[1]).unpack(data)


def test_whose_values_count():
    members = tuple(Member(rank, 10 + rank) for rank in (1, 2, 4))

    def source(new, root):
        new = frozenset(m for m in members if m.rank in new)
        return Outcome(5, members, new, False, None).source(root).rank

    assert source((), 4) == 1
    assert source((1, 2), 1) == 4, "one that has values, even if the root has none"
    assert source((1,), 1) == 2
    assert source((1, 2, 4), 2) == 2, "all are new: the root"
    assert source((1, 2, 4), 0) == 1, "the root is dead"


def test_a_worker_that_was_started_again_is_another_one():
    control = Control.__new__(Control)
    live = [7, 2**18 + 9]  # ranks 0 and 1
    client = types.SimpleNamespace(live_incarnations=lambda: live, live_ranks=lambda: [0, 1])
    control._ctx = types.SimpleNamespace(client=client)
    assert control.missing((Member(0, 7), Member(1, 9))) == []
    assert control.missing((Member(0, 5), Member(1, 9), Member(2, 8))) == [0, 2]


# --- as a worker of a job in which all others are gone -----------------------------------------------------


@pytest.fixture
def ctx(worker):
    """This process' cluster as if others could join it."""
    here = context.current()
    return types.SimpleNamespace(client=here.client, rank=here.rank, world_size=1, embedded=False, call_timeout_s=30.0,
                                 _scheduler=None, on_shutdown=lambda leave: None)


def other(control, rank, incarnation):
    """The control of another worker of the same table."""
    found = copy.copy(control)
    found.me = Member(rank, incarnation)
    return found


def outcome_of(ballots, attempt=9):
    """What the table's mean of these votes is read as."""
    ballot = Ballot.__new__(Ballot)
    ballot._table, ballot._result = types.SimpleNamespace(round=lambda: attempt), torch.stack(ballots).mean(0)
    return ballot._read()


@pytest.fixture
def votes(ctx, monkeypatch):
    """Votes of four workers, as they are given."""
    given = []
    monkeypatch.setattr("cairn._allreduce.control.Ballot", lambda table, values: given.append(values))
    control = Control(ctx, "votes")
    return [other(control, rank, (1 << 18) - 1 - rank) for rank in (0, 1, 5, 1007)], given


def test_the_outcome_of_a_vote(votes):
    workers, given = votes
    for worker in workers:
        worker.vote(new=worker.me.rank == 5)
    members = tuple(worker.me for worker in workers)
    assert outcome_of(given) == Outcome(9, members, frozenset([workers[2].me]), False, None)
    given.clear()
    for worker in workers[:3]:
        worker.vote(failed=worker.me.rank == 1)
    assert outcome_of(given) == Outcome(9, members[:3], frozenset(), True, None)


def test_the_outcome_of_a_decision(votes):
    workers, given = votes
    for decision in ((0.25, False), (0.25, False), None, None):
        workers[len(given)].decide(decision)
    assert outcome_of(given).decision == (0.25, False) and not outcome_of(given).failed
    given.clear()
    for decision in ((1.0, True), None):
        workers[len(given)].decide(decision)
    assert outcome_of(given).decision == (1.0, True)
    assert outcome_of(given[1:]).decision == (1.0, True), "whoever could decide has died: it is skipped"


def test_decisions_that_differ_name_the_ranks(votes):
    def difference(*decisions):
        votes[1].clear()
        for worker, decision in zip(votes[0], decisions):
            worker.decide(*decision)
        votes[0][3].vote(new=True)  # a late joiner's, which is none on the decision
        return outcome_of(votes[1]).difference()

    applies, skips, follows = ((0.25, False), [0.1, 0.9]), ((1.0, True),), (None,)
    assert difference(applies, applies, follows) == "" == difference(skips, skips, follows)
    assert difference(follows, skips, applies).startswith("rank 1 skips this step of the all-reduced parameters, rank 5")
    for other in (((0.5, False), [0.1, 0.9]), ((0.25, False), [0.2, 0.9])):
        assert difference(applies, follows, other).startswith("ranks 0 and 5 step the all-reduced parameters differently")


def test_limits_of_a_vote(ctx, votes):
    with pytest.raises(cairn.InvalidArgumentError, match="this worker is rank 1008: an all-reduce has ranks below 1008"):
        other(votes[0][0], 1008, 1).vote()
    ctx.world_size = 1009
    with pytest.raises(cairn.InvalidArgumentError, match='1009 workers: an all-reduce has at most 1008.*server='):
        Control(ctx, "large")
    ctx.world_size = 1008
    Control(ctx, "as large as can be")


def test_where_to_meet_and_who_has_given_up(ctx):
    control = Control(ctx, "meetings")
    assert control.meeting(4) is None and control.failed_at(4) is None
    for attempt, address in enumerate(("127.0.0.1", "255.255.255.255", "2001:db8::8000:0:0:1", "fe80::1", "ffff::ffff")):
        control.publish(attempt, address, 65535 - attempt)
        control.publish(attempt, "10.0.0.1", 1)  # the first word stays
        assert control.meeting(attempt) == (address, 65535 - attempt) and control.failed_at(attempt) is None
    other(control, 7, 1).tell_failed(2)
    assert control.failed_at(2) == 7 and control.failed_at(1) is None and control.failed_at(3) is None
    control.tell_failed(3)
    assert control.failed_at(3) == 0
    assert Control(ctx, "other meetings").meeting(0) is None


def test_a_vote_whose_answer_is_late_counts_once(ctx):
    control = Control(ctx, "late")
    ballot = control.vote()
    ballot.pending.wait()

    class Late:
        def wait(self):
            raise cairn.DeadlineExceededError("late")

    ballot.pending = Late()
    with pytest.raises(cairn.DeadlineExceededError):
        ballot.wait()
    assert ballot.wait().members == (control.me,) and control.attempt == 1


def test_the_address_for_others(ctx, monkeypatch):
    control = Control(ctx, "address")
    monkeypatch.setattr(hosting, "_address_towards", lambda host: f"127.0.0.1 towards {host}")
    monkeypatch.setattr(hosting, "own_address", lambda master: f"localhost{master}")
    for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    assert control.own_address() == "127.0.0.1 towards 127.0.0.1"
    ctx._scheduler = ("scheduler", 1)
    assert control.own_address() == "127.0.0.1 towards scheduler"
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert control.own_address() == "127.0.0.1", "workers on other machines don't reach our loopback"
    monkeypatch.setattr(hosting, "_address_towards", lambda host: "10.1.2.3")
    assert control.own_address() == "10.1.2.3"


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


def test_patience(ctx, monkeypatch, capsys):
    clock = Clock()
    monkeypatch.setattr("cairn._allreduce.group.time", clock)
    control = Control(ctx, "patience")
    absent = Member(3, 4)
    control.missing = lambda members: []
    patience = Patience(control, (control.me, absent, Member(6, 5)), 2, "an all-reduce")
    patience.turn_if_due()
    assert patience._turns == 0
    clock.now += 0.0625
    patience.turn_if_due()
    patience.turn_if_due()
    assert patience._turns == 1, "once in half a turn's time"
    clock.now += 10.5
    patience.turn()
    patience.turn()
    assert capsys.readouterr().err == "cairn: rank 0 waits for ranks 3, 6 in an all-reduce of patience (11 s)\n"
    clock.now += 19.5
    with pytest.raises(cairn.DeadlineExceededError, match="rank 0 waits for ranks 3, 6 in .*: not there after 30 s"):
        patience.turn()
    for _ in range(4):
        patience.turn()  # whoever calls again waits again
    other(control, 6, 5).tell_failed(2)
    patience.turn()
    with pytest.raises(AttemptFailed, match="rank 6 has given up"):
        patience.turn()
    control.missing = lambda members: [3, 6]
    with pytest.raises(AttemptFailed, match="rank 3 is no longer there"):
        patience.turn()


def test_steps_with_votes(ctx, recwarn):
    """Alone but in a job: the same as plain torch, and steps, hypers and state are what they were."""
    model, expected = make_model(3), make_model(3)
    inner, plain = make_optimizer(model), make_optimizer(expected)
    reduced = AllReduced(list(model.parameters()), ["p"] * 6, inner, 0)
    assert not AllReduced.joins(ctx, "voted")
    reduced.attach(ctx, "voted")
    assert AllReduced.joins(ctx, "voted") and reduced.stage == "idle" and reduced.joined_step is None
    for number in range(3):
        for net, optimizer in ((model, inner), (expected, plain)):
            optimizer.zero_grad()
            backward(net, *batch(number, 0))
        step(reduced, None if number else 3.0)
        plain.step()
    assert digest(model, inner) == digest(expected, plain) and reduced.steps == 3
    reduced.give_from_root()
    assert digest(model, inner) == digest(expected, plain) and reduced.steps == 3 and reduced.stage == "idle"
    # Skipped, without a weight, or not finite: a step, but nothing changes.
    for options, skips in (({}, True), ({"weight": 0.0}, False), ({"not_finite": True}, False), ({"joined": True}, False)):
        backward(model, *batch(9, 0))
        reduced.contribute(options.pop("weight", 1.0), **options)
        reduced.settle(reduced.vote())
        assert reduced.info.finite == ("not_finite" not in options)
        assert reduced.info.all_joined == ("joined" in options)
        reduced.apply(skip=skips)
    assert digest(model, inner) == digest(expected, plain) and reduced.steps == 7 and not recwarn.list
    again = AllReduced(list(model.parameters()), ["p"] * 6, inner, 0)
    with pytest.warns(UserWarning, match="the workers that had trained it are gone, and their values with them"):
        again.attach(ctx, "voted")


def test_a_step_that_was_left_open_is_skipped(ctx):
    model = make_model(3)
    reduced = AllReduced(list(model.parameters()), ["p"] * 6, make_optimizer(model), 0)
    reduced.attach(ctx, "left open")
    for calls in (0, 1, 2):
        backward(model, *batch(0, 0))
        reduced.contribute(1.0)
        pending = reduced.vote() if calls else None
        if calls == 2:
            reduced.settle(pending)
        assert reduced.under_way and reduced.stage == ("reducing", "voting", "settled")[calls]
        reduced.give_from_root()
        assert reduced.steps == calls + 1 and not reduced.under_way
    assert digest(model, make_optimizer(model)) == digest(make_model(3), make_optimizer(model))


def test_collectives_with_votes(ctx):
    found = Collectives(ctx)
    calls = []

    def exchange(group):
        calls.append(group.ranks)
        return "result"

    for _ in range(2):
        assert found.run("a call", exchange) == "result"
    assert calls == [[0], [0]] and found._control.attempt == 3, "a vote to find each other, and one a call"

    def fails_once(group):
        calls.append("failed")
        if len(calls) == 3:
            raise AttemptFailed("a member is gone")
        return 2

    assert found.run("a call", fails_once) == 2 and len(calls) == 4
    with pytest.raises(ZeroDivisionError):
        found.run("a call", lambda group: 1 / 0)
    assert found._control.failed_at(found._control.attempt) == 0, "the others don't wait for us"
    found._control.deadline_s = -1.0
    with pytest.raises(cairn.DeadlineExceededError, match="a call: the workers could not .* the last reason: never"):
        found.run("a call", lambda group: (_ for _ in ()).throw(AttemptFailed("never")))


# The update that all workers make.
def test_settings_that_differ_are_named():
    params = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    inner = torch.optim.Adam([{"params": params[:1]}, {"params": params[1:2], "lr": 0.5}, {"params": params[2:]}])
    update = Update(params[:2], inner)
    ours = update.hypers()
    assert len(ours) == len(Update(params[2:], inner).hypers()) * 2
    theirs = list(ours)
    assert update.difference(ours, theirs) is None
    theirs[ours.index(0.999)] = 0.9
    assert update.difference(ours, theirs) == "betas is 0.9, 0.999 on one and 0.9, 0.9 on the other"
    theirs = [0.25 if number == 0.5 else number for number in ours]
    assert update.difference(ours, theirs) == "lr is 0.5 on one and 0.25 on the other"
    assert update.difference(ours, [*ours, 1.0]) == "their optimizers have different settings"
    inner.param_groups[0]["initial_lr"] = 3.0  # a scheduler's, not the update's
    assert update.hypers() == ours


def test_a_worker_along_for_the_ride_takes_the_others_settings_for_one_step():
    params = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    inner = torch.optim.SGD([{"params": params[:1], "lr": torch.tensor(1.0)}, {"params": params[1:], "lr": 2}], lr=0.1)
    update = Update(params, inner)
    theirs = [{1.0: 4.0, 2.0: 8.0}.get(number, number) for number in update.hypers()]
    update.step([torch.ones(2), torch.ones(2)], theirs)
    assert params[0].tolist() == [-3.0, -3.0] and params[1].tolist() == [-7.0, -7.0]
    assert torch.equal(inner.param_groups[0]["lr"], torch.tensor(1.0)) and inner.param_groups[1]["lr"] == 2
    assert [len(group["params"]) for group in inner.param_groups] == [1, 1]


def test_what_can_not_be_all_reduced_or_given():
    for tensor, words in ((torch.ones(2, dtype=torch.complex64), "named is torch.complex64: only real"),
                          (torch.eye(2).to_sparse(), "named is sparse .*assign it to the servers")):
        with pytest.raises(TypeError, match=words):
            check_parameters([tensor], ["named"])
    param = nn.Parameter(torch.ones(2))
    inner = torch.optim.SGD([param], lr=0.1)
    inner.state[param] = {"history": [1, 2]}
    with pytest.raises(cairn.Error, match=r"has a list \(history\), which can't be given"):
        Update([param], inner).pack(0, False)
    inner.state[param] = {"kind": "plain", "none": None, "count": 3}
    data = Update([param], inner).pack(0, False)
    other_param = nn.Parameter(torch.ones(3))
    with pytest.raises(cairn.Error, match=r"shape \(2,\) on the first worker and \(3,\) here"):
        Update([other_param], inner).unpack(data)
    inner.state.clear()
    version = param._version
    assert Update([param], inner).unpack(data) == (0, False)
    assert inner.state[param] == {"kind": "plain", "none": None, "count": 3}
    assert param._version == version, "a write would count as the user's"


def test_what_all_records_say_together():
    parts = [Part(2.0, 2.0, [torch.ones(1), None], [0.1, 0.2], weighted=True),
             Part(5.0, 5.0, [torch.ones(1), torch.ones(1)], [0.1, 0.3], joined=True),
             Part(3.0, 3.0, [None, None], [0.5, 0.6])]
    records = [Attempt(None, None, part, None, 0)._record([0.0]) for part in parts]
    sums = _summed(records, [1, 4, 6], 1, 2)
    assert sums.weight == 5.0 and sums.present == [True, False] and not sums.not_finite
    assert sums.joined == [4] and sums.active == [1, 6] and sums.weighted == [True, False]
    assert sums.hypers == [[0.1, 0.2], [0.5, 0.6]]
    parts[2].not_finite = True
    assert _summed([Attempt(None, None, parts[2], None, 0)._record([])], [6], 0, 2).not_finite
