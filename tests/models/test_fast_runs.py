"""The fast path at full size and over whole runs; test_fast.py has what every vector width runs."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedapa import LargeConvNet4, MiddleConvNet4, Plan, TinyConvNet4
from fedapa.federation import rounds
from fedapa.federation.engines.in_process import InProcess
from fedapa.learning.fit import Training
from fedapa.models import fast
from tests.conftest import MakeRooms
from tests.models.test_fast import (
    TOLERANCE,
    far,
    learn,
    net_of,
    noise,
    take_the_plain_path,
)


@pytest.mark.parametrize("kind", [TinyConvNet4, MiddleConvNet4, LargeConvNet4])
def test_a_window_of_the_papers_size_is_the_plain_paths(kind: type) -> None:
    """1000 packets × 242 subcarriers and 256 features; 60,500 positions a channel at first.

    Over so much noise the gradient of Tiny's kernels nearly cancels: what is left of it is known to
    a percent in float32, by torch as by us. So gradients are held against torch's error.
    """
    windows = noise(2, 1000, 242)
    ours, truth = net_of(kind, 256), net_of(kind, 256).double()
    torchs = take_the_plain_path(net_of(kind, 256))
    assert fast.fits(ours.encoder, windows[:, None])
    assert far(learn(ours, windows), learn(truth, windows.double())) < TOLERANCE
    learn(torchs, windows)
    for (name, mine), (_, its), (_, true) in zip(
        ours.named_parameters(), torchs.named_parameters(), truth.named_parameters(), strict=True
    ):
        assert mine.grad is not None and its.grad is not None and true.grad is not None
        assert far(mine.grad, true.grad) < 3 * far(its.grad, true.grad) + 2e-6, name


def test_a_whole_run_ends_where_the_plain_path_does(
    make_rooms: MakeRooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten rounds of FedAPA with one room of each net: losses, accuracies and prototypes."""

    def run(folder: str) -> tuple[list[Any], Any]:
        rooms = make_rooms(
            ((0, 1, 2),) * 3,
            architecture=("tiny", "middle", "large"),
            shape=(40, 24),
            windows_per_class=20,
        )
        plan = Plan(
            rounds=10,
            training=Training(batch_size=8),
            algorithm={"name": "fedapa", "warm_rounds": 2},
        )
        algorithm = plan.build()
        (tmp_path / folder).mkdir()
        with InProcess(algorithm, rooms, folder=tmp_path / folder, workers=0) as engine:
            begun = dict(rounds.begin(algorithm, engine, plan))
            steps = list(rounds.run(algorithm, engine, plan, begun))
        sets: Any = algorithm.sets(steps[-1].state["server"])  # type: ignore[arg-type]
        return [step.record for step in steps[1:]], sets[0]

    encode, taken = fast.encode, []
    monkeypatch.setattr(fast, "encode", lambda *given: taken.append(1) or encode(*given))  # type: ignore[func-returns-value]
    ours, prototypes = run("ours")
    assert taken, "the fast path was taken"
    taken.clear()
    monkeypatch.setattr(fast, "fits", lambda *_: False)
    plain, expected = run("plain")
    assert not taken
    # Ten rounds magnify last digits, more on some processors than on others: 0.011 was seen.
    assert far(torch.from_numpy(prototypes), torch.from_numpy(expected)) < 3e-2
    chance = 1 / 3
    for mine, its in zip(ours, plain, strict=True):
        for room, values in its["rooms"].items():
            assert mine["rooms"][room]["loss"] == pytest.approx(values["loss"], rel=1e-2)
    accuracies = [records[-1]["mean"]["accuracy"] for records in (ours, plain)]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.03)  # one of 36 test windows
    assert accuracies[1] > chance + 0.2, "rooms that learn nothing would agree as well"
