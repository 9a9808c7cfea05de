"""Steps without autograd: to the bit those of autograd, and taken only where they are known."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedapa.learning import by_hand
from fedapa.learning import fit as fit_module
from fedapa.learning.fit import Objective, Training, cross_entropy, fit
from fedapa.learning.losses import Hybrid, soft_targets
from fedapa.models.model import Model
from fedapa.randomness import Key
from fedapa.rooms.room import Room

_CLASSES, _WIDTH = 6, 32

_PLAIN = Training()
_KEPT = Training(
    learning_rate=0.05,
    momentum=0.9,
    weight_decay=3e-3,
    batch_size=32,
    epochs=2,
    keep_momentum=True,
    augment=("differences",),
    ordinal=1.5,
)
_BARE = Training(momentum=0.0, weight_decay=0.0, batch_size=9, noise=0.1)


def _room(architecture: str, *shape: int) -> Room:
    stream = (Key(0) / "by hand").numpy()
    windows = 2 * stream.normal(size=(75, *(shape or (20,)))).astype(np.float32)
    labels = stream.permutation(np.arange(75) % _CLASSES)
    return Room.of("lab", windows, labels, architecture=architecture, width=_WIDTH)


def _hybrid(*, peers: int = 3, absent: int = 0, weight: float = 0.7) -> Hybrid:
    stream = (Key(1) / "prototypes").numpy()
    mixture = torch.from_numpy(stream.normal(size=(_CLASSES, _WIDTH)).astype(np.float32))
    sets = torch.from_numpy(stream.normal(size=(peers, _CLASSES, _WIDTH)).astype(np.float32))
    present = torch.arange(_CLASSES) < _CLASSES - absent
    return Hybrid(weight=weight, mixture=mixture, sets=sets, present=present, temperature=0.3)


def _by_autograd(objective: Objective) -> Objective:
    """The same objective, as one that nobody knows."""

    def unknown(model: Model, windows: Tensor, labels: Tensor) -> object:
        return objective(model, windows, labels)

    return unknown  # type: ignore[return-value]


@pytest.mark.parametrize("part", ["all", "encoder", "classifier"])
@pytest.mark.parametrize("training", [_PLAIN, _KEPT, _BARE])
@pytest.mark.parametrize(
    "objective",
    [
        cross_entropy,
        Hybrid(offset=torch.arange(_CLASSES) / 10),
        _hybrid(),
        _hybrid(peers=0),
        _hybrid(absent=1),
        _hybrid(weight=0.0),
        replace(_hybrid(), shares=torch.tensor([0.45, 0.45, 0.1])),
    ],
)
@pytest.mark.parametrize(
    ("architecture", "shape"), [("mlp", (20,)), ("counter", (200,)), ("middle", (17, 10))]
)
def test_steps_have_the_bits_of_autograd(
    architecture: str,
    shape: tuple[int, ...],
    objective: Objective,
    training: Training,
    part: fit_module.Part,
) -> None:
    """200 numbers are more than those for which the net's rates were chosen: it scales them."""
    room = _room(architecture, *shape)
    if isinstance(objective, Hybrid) and objective.present is not None:
        labels = np.where(objective.present.numpy()[room.labels], room.labels, 0)
        room = replace(room, labels=labels)
    nets, fits = [], []
    for chosen in (objective, _by_autograd(objective)):
        net = room.build()
        if training.ordinal:
            net.targets = soft_targets(room.classes, training.ordinal)
        before = {name: 0.01 * p.detach().numpy() for name, p in net.named_parameters()}
        before.pop("classifier.bias")  # as if it had been frozen so far
        fits.append(fit(net, room, chosen, training, key=Key(3), part=part, momentum=before))
        nets.append(net)
    for (name, hand), (_, graph) in zip(*(net.state_dict().items() for net in nets), strict=True):
        assert torch.equal(hand, graph), name
    assert fits[0].losses == fits[1].losses
    assert fits[0].momentum.keys() == fits[1].momentum.keys()
    for name, velocity in fits[0].momentum.items():
        assert velocity.tobytes() == fits[1].momentum[name].tobytes(), name


@pytest.mark.parametrize("architecture", ["tiny", "large"])
def test_the_paper_s_nets_have_the_bits_of_autograd_twice_in_a_row(architecture: str) -> None:
    """Tiny's embeddings lie in another order in memory; no gradient is left for a second time."""
    room = _room(architecture, 17, 10)
    nets = [room.build(), room.build()]
    for net, objective in zip(nets, (_hybrid(), _by_autograd(_hybrid())), strict=True):
        fit(net, room, _by_autograd(cross_entropy), _PLAIN, key=Key(0))
        fit(net, room, objective, _PLAIN, key=Key(1))
        fit(net, room, cross_entropy, _PLAIN, key=Key(2), part="classifier")
    for (name, hand), (_, graph) in zip(*(net.state_dict().items() for net in nets), strict=True):
        assert torch.equal(hand, graph), name


def test_an_embedding_without_direction_gets_no_contrast() -> None:
    room = _room("mlp")
    nets = []
    for objective in (_hybrid(), _by_autograd(_hybrid())):
        net = room.build()
        with torch.no_grad():
            net.encoder.second.weight.zero_()
            net.encoder.second.bias.fill_(-1.0)  # ReLU leaves nothing
        fit(net, room, objective, _PLAIN, key=Key(0))
        nets.append(net)
    for hand, graph in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.equal(hand, graph)


@pytest.mark.parametrize("change", ["hook", "double", "absent"])
def test_what_is_not_known_goes_by_autograd(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    room, objective = _room("mlp"), _hybrid()
    if change == "absent":  # the room holds the last class
        objective = _hybrid(absent=1)
    net = room.build()
    if change == "hook":
        net.classifier.register_forward_hook(lambda *_: None)
    elif change == "double":
        net.double()
    monkeypatch.setattr(fit_module, "_ByAutograd", _Taken)
    with pytest.raises(_TakenError):
        fit(net, room, objective, _PLAIN, key=Key(0))
    fit(_room("mlp").build(), _room("mlp"), _hybrid(), _PLAIN, key=Key(0))  # taken by hand


@pytest.mark.parametrize("change", ["hook", "layer", "normalised"])
def test_an_encoder_that_is_not_known_goes_by_autograd(change: str) -> None:
    room = replace(_room("mlp"), normalise_embedding=change == "normalised")
    nets, heard = [], []
    for objective in (_hybrid(), _by_autograd(_hybrid())):
        net = room.build()
        if change == "hook":
            net.encoder.first.register_forward_hook(lambda *_: heard.append(1))
        elif change == "layer":
            net.encoder.second_relu = torch.nn.GELU()
        fit(net, room, objective, _PLAIN, key=Key(0))
        nets.append(net)
    for hand, graph in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.equal(hand, graph)
    assert len(heard) % 2 == 0
    assert bool(heard) == (change == "hook")


@pytest.mark.parametrize("architecture", ["mlp", "counter", "middle"])
def test_a_room_has_the_bits_that_it_has_alone_whoever_trained_before(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rooms with equal nets use the same buffers, one after the other.

    Batches of other sizes, other losses, other frozen parts and a training that was given up come
    between.
    """
    shape = (17, 10) if architecture == "middle" else (20,)
    rooms = [_room(architecture, *shape), _room(architecture, *shape)]
    rooms[1] = replace(rooms[1], name="bus", windows=rooms[1].windows[::-1] + np.float32(1))
    shares = torch.tensor([0.2, 0.7, 0.1])
    losses = [_hybrid(), replace(_hybrid(weight=0.2), shares=shares), cross_entropy]
    tasks = [
        (room, loss, part, size)
        for size in (16, 9, 7, 11, 13)
        for loss in losses
        for part in ("all", "encoder", "classifier")
        for room in rooms
    ]

    def trained(place: int) -> list[Tensor]:
        room, loss, part, size = tasks[place]
        training = Training(batch_size=size, learning_rate=0.05)
        net = room.build()
        made = fit(net, room, loss, training, key=Key(place), part=part)  # type: ignore[arg-type]
        return [*net.state_dict().values(), torch.tensor(made.losses["loss"])]

    alone = []
    for place in range(len(tasks)):
        monkeypatch.setattr(by_hand._Bench, "_unused", {})
        alone.append(trained(place))
    steps = by_hand.KnownSteps.of(rooms[0].build(), losses[0], by_hand.Pace(1, 0.5, 0), {})
    steps.step(*next(rooms[0].batches(16, Key(9))))  # never finished
    order = (Key(4) / "order").numpy().permutation(len(tasks)).tolist()
    for place in (*order, *order[::-1]):
        for mine, its in zip(trained(place), alone[place], strict=True):
            assert torch.equal(mine, its), tasks[place]
    assert len(by_hand._Bench._unused) <= by_hand._BENCHES


class _TakenError(Exception):
    """Autograd was asked."""


class _Taken:
    def __init__(self, *_: object) -> None:
        raise _TakenError


def test_a_trained_net_owns_its_weights() -> None:
    """They are views of one buffer; a copy must not be, and a second training starts from them."""
    room = _room("counter")
    net = room.build()
    fit(net, room, cross_entropy, _PLAIN, key=Key(0))
    kept = {name: value.clone() for name, value in net.state_dict().items()}
    other = room.build()
    other.load_state_dict(net.state_dict())
    fit(other, room, cross_entropy, _PLAIN, key=Key(1))
    assert all(torch.equal(kept[name], value) for name, value in net.state_dict().items())
    assert not torch.equal(kept["classifier.weight"], other.classifier.weight)
