"""script/chaos itself: what it takes in turn, how a leg is repeated, and that a training which differs from
one in peace is noticed. The runs themselves are script/check's."""
import struct

import pytest

import chaos
import chaos_legs
from chaos_loads import Failed, Training


def chosen(monkeypatch, words):
    monkeypatch.setattr(chaos_legs, "missing", lambda leg: None)
    options = chaos.parse(words.split())
    return [(leg.name, leg.kills) for leg in chaos_legs.legs(options)[0]]


@pytest.mark.parametrize(("words", "legs"), [
    ("--kills 10 --load soak --schedulers one --no-scaling", [("async", 5), ("sync", 5)]),
    ("--kills 3 --load soak --mode sync --scaling", [("sync-scaling", 1), ("sync-etcd-scaling", 2)]),
    ("--kills 4 --load ctr", [("ctr-scaling", 4)]),
    ("--kills 2 --load lenet --schedulers etcd --scaling", [("lenet-etcd-scaling", 2)]),
    ("--kills 1", [("async", 1)]),
])
def test_options_choose(monkeypatch, words, legs):
    assert chosen(monkeypatch, words) == legs


def test_the_default_takes_everything_in_turn(monkeypatch):
    legs = chosen(monkeypatch, "--kills 40")
    assert sum(kills for _, kills in legs) == 40
    assert all(kills >= 5 for _, kills in legs)
    for part in ("async", "sync", "lenet", "ctr", "etcd", "scaling"):
        assert any(part in name for name, _ in legs), part


def test_a_leg_is_repeated_by_its_own_words(monkeypatch):
    monkeypatch.setattr(chaos_legs, "missing", lambda leg: None)
    options = chaos.parse("--kills 40 --replicas 3".split())
    for leg in chaos_legs.legs(options)[0]:
        again = chaos.parse(leg.repeat(7, options).split()[1:])
        assert again.seed == 7 and again.replicas == 3
        same, = chaos_legs.legs(again)[0]
        assert (same.name, same.kills) == (leg.name, leg.kills)
        assert same.choices(7).random() == leg.choices(7).random()


@pytest.mark.parametrize(("losses", "answer", "says"), [
    ([1.0, 2.0], "0x1p+0", None),
    ([1.0, 2.0000000000000004], "0x1p+0", "step 2 has the loss"),
    ([1.0], "0x1p+0", "has made 2 steps, 1 in peace"),
    ([1.0, 2.0], "0x1p+1", "answers otherwise"),
])
def test_a_training_that_differs_is_noticed(monkeypatch, tmp_path, losses, answer, says):
    training = Training(chaos.parse(["--kills", "1", "--workers", "2"]), "lenet")

    def write(folder, losses, answer):
        folder.mkdir()
        for rank in range(2):
            (folder / f"losses-{rank}").write_bytes(struct.pack(f"<{len(losses)}d", *losses))
        (folder / "answer").write_text(answer)

    monkeypatch.setattr(training, "train_in_peace", lambda steps, folder: write(folder, losses, answer))
    write(tmp_path / "training", [1.0, 2.0], "0x1p+0")
    if says is None:
        assert training.result(tmp_path, "")[:3] == (4, 0, 0)
    else:
        with pytest.raises(Failed, match=says):
            training.result(tmp_path, "")
