"""The comparison with peers: the plain loop computes what ours does, and its arithmetic."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import _beside, _eager, _ours, _products, _start, _turns, _work, peers, training
from benchmarks.__main__ import main
from benchmarks._turns import Spent
from fedapa import aggregate_prototypes, class_prototypes
from fedapa.errors import FedapaError
from fedapa.learning.losses import fedapa_loss
from fedapa.models.build import build_model
from fedapa.randomness import Key
from fedapa.rooms.room import cut_batches


def _noise(*shape: int) -> torch.Tensor:
    return torch.from_numpy(Key(7).numpy().normal(size=shape).astype(np.float32))


@pytest.mark.parametrize(
    ("net", "shape"),
    [("tiny", (20, 12)), ("middle", (20, 12)), ("large", (40, 36)), ("mlp", (9,))],
)
def test_the_plain_net_is_ours_layer_by_layer(net: str, shape: tuple[int, ...]) -> None:
    ours = build_model(net, classes=21, width=256, window_shape=shape, key=Key(0))
    plain = _eager.Net(net, shape)
    weights = zip(plain.state_dict(), ours.state_dict().values(), strict=True)
    plain.load_state_dict(dict(weights))
    windows = _noise(5, *shape)
    for module in (ours, plain):
        module.train()
    for mine, theirs in zip(ours(windows), plain(windows), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_the_plain_loss_is_eqn_11() -> None:
    logits, embedding, sets = _noise(6, 21), _noise(6, 256), _noise(4, 21, 256)
    labels = torch.tensor([0, 3, 3, 20, 7, 1])
    ours = fedapa_loss(
        logits,
        embedding,
        labels,
        mixture=sets[1],
        sets=sets,
        present=torch.ones(21, dtype=torch.bool),
        temperature=_eager.TEMPERATURE,
        weight=1.0,
    )
    plain = _eager.hybrid_loss(sets[1], sets)(logits, embedding, labels)
    torch.testing.assert_close(plain, ours["loss"])


def test_the_plain_loop_merges_and_measures_as_ours(tmp_path: Path) -> None:
    sets = _noise(4, 21, 256)
    present = torch.ones(4, 21, dtype=torch.bool)
    ours = aggregate_prototypes(sets, present, _eager.TEMPERATURE)
    torch.testing.assert_close(_eager.mixed(sets), ours, rtol=1e-4, atol=1e-5)
    work = replace(_work.WORKS["features"], rooms=1, train=30, test=4)
    _work.write_rooms(work, tmp_path)
    data, net = _eager.Data(tmp_path, 0, work.train), _eager.Net(work.net, work.shape)
    with torch.no_grad():
        expected, _ = class_prototypes(net(data.train)[1], data.train_labels, 21)
    torch.testing.assert_close(_eager.prototypes(net, data), expected)


def test_a_plain_round_trains_every_room(tmp_path: Path) -> None:
    work = replace(_work.WORKS["features"], rooms=2, train=33, test=5)
    _work.write_rooms(work, tmp_path)
    data, net = _eager.Data(tmp_path, 1, work.train), _eager.Net(work.net, work.shape)
    sets = _noise(2, 21, 256)
    before = net.classifier.weight.detach().clone()
    _eager.train(net, data, _eager.hybrid_loss(sets[0], sets), torch.arange(work.train))
    assert not torch.equal(before, net.classifier.weight)
    assert 0 <= _eager.score(net, data) <= 1
    loop = _eager.fedapa_rounds(work, tmp_path)
    next(loop)
    next(loop)


@pytest.mark.parametrize("windows", [1, 15, 16, 17, 33, 111])
def test_batches_are_cut_as_ours(windows: int) -> None:
    cut = [len(some) for some in cut_batches(np.arange(windows), _work.BATCH)]
    assert _work.batches(windows) == cut


@pytest.mark.parametrize("net", ["tiny", "middle", "large"])
def test_products_have_the_flops_of_the_net(
    net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the training benchmark counts, less the head's bias (256, three times)."""
    monkeypatch.setattr(training, "SHAPE", (40, 36))
    (room,) = training.make_rooms(tmp_path, (net,))
    work = replace(_work.WORKS["quick_large"], shape=(40, 36), train=1, net=net)
    bias = 0 if net == "tiny" else 3 * 256
    assert _products.flops_of_training(work) == training.products_of_a_step(room) - bias


def test_products_of_feature_vectors_by_hand() -> None:
    work = replace(_work.WORKS["features"], train=1)
    assert _products.products(work) == [(1, 85, 256), (1, 256, 256), (1, 256, 21)]
    assert _products.flops_of_training(work) == 2 * (2 * 85 * 256 + 3 * 256 * (256 + 21))


def test_a_round_of_products_is_three_per_layer_and_one_per_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two rooms, batches of 16 and 4 to train, one of 5 to score; four layers with the cosines.

    Forward: 3 layers × (2 + 1) looks and 4 × 2 in training; weights 3 × 2; inputs 3 × 2, for the
    first layer needs none and the cosines do.
    """
    work = replace(_work.WORKS["features"], rooms=2, train=20, test=5)
    called: list[str] = []
    for name in ("forward", "of_weights", "of_input"):
        monkeypatch.setattr(_products._Layer, name, lambda self, name=name: called.append(name))
    next(_products.product_rounds(work))
    counted = {name: called.count(name) for name in set(called)}
    assert counted == {"forward": 2 * (9 + 8), "of_weights": 2 * 6, "of_input": 2 * 6}


def test_all_programs_have_the_same_windows(tmp_path: Path) -> None:
    work = replace(_work.WORKS["features"], rooms=2, train=30, test=4)
    _work.write_rooms(work, tmp_path)
    _, room = _ours.make_rooms(work, tmp_path)
    data = _eager.Data(tmp_path, 1, work.train)
    assert (len(room.split.train), len(room.split.test)) == (len(data.train), len(data.test))
    windows, labels = room.tensors(room.split.test)
    assert torch.equal(labels, data.test_labels)
    # Ours divides by the deviation of all, the plain loop by an unbiased one.
    torch.testing.assert_close(windows, data.test, rtol=0.05, atol=0.05)


def test_six_rooms_have_666_train_windows() -> None:
    for name in ("quick_large", "features"):
        assert _work.WORKS[name].rooms * _work.WORKS[name].train == 666


def test_ratios_by_hand() -> None:
    """Ours 2 s and 1.5 s, the loop 4 s and 3 s, products 1 s: 3 / 1.5 and 1 / 1.5."""
    ours = peers.best([Spent(2.0, 1.0), Spent(1.5, 3.0)])
    assert (ours.processor, ours.elapsed) == (1.5, 1.0)
    found = peers.compared({"ours": ours, "eager": Spent(3.0, 3.0), "products": Spent(1.0, 1.0)})
    assert found["eager_ratio"] == 2.0
    assert found["share_of_products"] == 0.67
    assert found["processor_seconds"] == {"ours": 1.5, "eager": 3.0, "products": 1.0}
    assert Spent(10.0, 20.0, 5.0).per(10) == Spent(1.0, 2.0, 5.0)


def test_the_start_in_processor_time_by_hand() -> None:
    """3 s before the first exchange, which takes 2.5 s where the second takes 2 s: 3.5 s."""
    assert _start.until_learning([3.0, 5.5, 6.0, 8.0, 9.0]) == pytest.approx(3.5)
    noted: list[str] = []
    exchange = _start.noting(lambda one: one + 1, lambda: noted.append("note"))
    assert exchange(1) == 2
    assert noted == ["note", "note"]


def _kept(**figures: Any) -> dict[str, Any]:
    return {name: {"commit": "abc", "date": "d", "figures": one} for name, one in figures.items()}


def test_a_bar_says_whether_it_is_reached() -> None:
    many: dict[str, Any] = {"seconds_per_round": 5.01, "peak_mb": 2048, "load": [1.0, 7.0]}
    many["processor_seconds"] = {"ours": 8.25}
    kept = _kept(rooms_1000=many, startup_cpu_s=3.9)
    _, rows = _beside.bars(kept)
    assert [row[-2:] for row in rows] == [
        ("5.01 at a load of 1–7; 8.25 s of processor time", "**not reached**"),
        ("2048", "reached"),
        ("3.9", "reached"),
    ]
    _, (row,) = _beside.bars(_kept(rooms_100={"flower_ratio": 2.99}))
    assert row[2:] == ("at least 3", "2.99", "**not reached**")


def test_the_page_begins_with_where_we_lose() -> None:
    kept = _kept(features={"eager_ratio": 0.49}, paper_large={"eager_ratio": 2.2})
    assert _beside.answer(kept) == (
        "Of the processor time of a round of ours, a plain PyTorch loop takes **less**: 0.49 times "
        "for FeatureMLP, 85 numbers.\n"
        "Of the processor time of a round of ours, a plain PyTorch loop takes **more**: 2.2 times "
        "for Large, 1000 × 242."
    )


def test_every_part_has_a_row_and_its_commit() -> None:
    assert set(_beside.WORK) == set(_work.WORKS)
    assert {*peers.PARTS, *peers.FURTHER} - {"startup"} == set(_work.WORKS)
    kept = _kept(
        features={
            "processor_seconds": {"ours": 0.0907, "eager": 0.0446},
            "elapsed_seconds": {"ours": 0.12345},
            "load": [1.0, 2.5],
        }
    )
    _, (row,) = _beside.rounds(kept)
    assert row[1:] == ("0.0907", "0.0446", "–", "–", "–", "0.123", "1–2.5")
    assert _beside.told(kept, ["A"]) == "Measured on: A; commit abc, d."
    kept["startup_cpu_s"] = {"commit": "def", "date": "d", "figures": 3.0}
    assert "commit abc, d (features); commit def, d (startup_cpu_s)" in _beside.told(kept, ["A"])


def test_a_program_takes_turns_and_a_failed_one_is_told(tmp_path: Path) -> None:
    words = ["benchmarks._program", "products"]
    with _turns.started([*words, "features", str(tmp_path)], tmp_path) as program:
        spent = program.turn(rounds=2, memory=True)
        assert 0 < spent.processor < 60
        assert spent.megabytes > 10
    unknown = _turns.started([*words, "nothing", str(tmp_path)], tmp_path)
    with pytest.raises(FedapaError, match="KeyError: 'nothing'"), unknown:
        pass


def test_two_benchmarks_may_have_an_option_of_one_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(peers, "measure", lambda **own: asked.update(own) or {})
    monkeypatch.setattr("sys.argv", ["benchmarks", "peers", "--part", "features", "--json"])
    assert main() == 0
    assert asked == {"part": ["features"], "turns": None, "keep": False}
    monkeypatch.setattr("sys.argv", ["benchmarks", "live", "--part", "features"])
    with pytest.raises(SystemExit):
        main()
    assert "invalid choice: 'features'" in capsys.readouterr().err
