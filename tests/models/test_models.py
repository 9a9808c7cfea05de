"""The nets: the paper's numbers, its shapes, and torch manners."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from fedapa import LargeConvNet4, MiddleConvNet4, TinyConvNet4
from fedapa.errors import PlanError
from fedapa.models.build import assign_by_size, build_model
from fedapa.models.cost import count_parameters, flops, layers
from fedapa.models.counter import CounterNet
from fedapa.models.mlp import FeatureMLP
from fedapa.models.model import Model, embed_each, unit
from fedapa.randomness import Key

NETS = [TinyConvNet4, MiddleConvNet4, LargeConvNet4]


@pytest.mark.parametrize(
    ("net", "parameters", "mflops"),
    [
        (TinyConvNet4, 7_956, 340.75),
        (MiddleConvNet4, 18_436, 162.85),
        (LargeConvNet4, 463_748, 606.35),
    ],
)
def test_the_papers_table(net: type, parameters: int, mflops: float) -> None:
    """At 20 classes and 1000 × 242, e.g. Tiny: 1·256·9 + 2·256 + 256·20 + 20 = 7,956."""
    model = net(20)
    assert count_parameters(model) == parameters
    assert round(flops(model, (1000, 242)) / 1e6, 2) == mflops


def test_layer_shapes_are_the_papers() -> None:
    shapes = {layer.name: layer.output for layer in layers(LargeConvNet4(20), (1000, 242))}
    assert shapes["encoder.block1.conv"] == (16, 500, 121)
    assert shapes["encoder.block2.conv"] == (32, 250, 61)
    assert shapes["encoder.block3.conv"] == (64, 125, 31)
    assert shapes["encoder.block4.conv"] == (128, 63, 16)
    assert shapes["encoder.block5.conv"] == (256, 32, 8)
    assert shapes["encoder.pool"] == (256, 1, 1)
    assert shapes["encoder.head"] == (256, 1, 1)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("width", [128, 256, 512])
@pytest.mark.parametrize("size", [(1000, 242), (7, 5), (1, 1)])
def test_any_window_any_width(net: type, width: int, size: tuple[int, int]) -> None:
    model = net(classes=5, width=width).eval()
    logits, embedding = model(torch.randn(2, 1, *size))
    assert logits.shape == (2, 5)
    assert embedding.shape == (2, width)
    without_channel = model(torch.ones(2, *size))[0]
    assert torch.equal(without_channel, model(torch.ones(2, 1, *size))[0])


@pytest.mark.parametrize("net", NETS)
def test_defaults_are_21_classes_and_width_256(net: type) -> None:
    model = net()
    assert (model.classifier.out_features, model.classifier.in_features) == (21, 256)


@pytest.mark.parametrize("net", NETS)
def test_convolutions_have_no_bias_and_the_head_has(net: type) -> None:
    for name, module in net().encoder.named_modules():
        if isinstance(module, nn.Conv2d):
            assert (module.bias is not None) == (name == "head")
            assert module.stride == ((1, 1) if name == "head" else (2, 2))


def test_train_and_eval_mode_differ_as_batchnorm_says() -> None:
    model = MiddleConvNet4(3)
    windows = torch.randn(4, 20, 8) * 5 + 3
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.eval()(windows)
    assert torch.equal(
        model.state_dict()["encoder.block1.norm.running_mean"],
        before["encoder.block1.norm.running_mean"],
    )
    model.train()(windows)
    assert not torch.equal(
        model.state_dict()["encoder.block1.norm.running_mean"],
        before["encoder.block1.norm.running_mean"],
    )


def test_parameters_come_in_the_order_of_the_layers() -> None:
    names = [name for name, _ in MiddleConvNet4().named_parameters()]
    assert names == [
        "encoder.block1.conv.weight",
        "encoder.block1.norm.weight",
        "encoder.block1.norm.bias",
        "encoder.block2.conv.weight",
        "encoder.block2.norm.weight",
        "encoder.block2.norm.bias",
        "encoder.head.weight",
        "encoder.head.bias",
        "classifier.weight",
        "classifier.bias",
    ]


def test_normalised_embeddings_have_length_one() -> None:
    _, embedding = LargeConvNet4(3, normalise_embedding=True).eval()(torch.randn(4, 30, 12))
    torch.testing.assert_close(embedding.norm(dim=1), torch.ones(4))


def test_unit_of_zero_is_zero() -> None:
    zeros = torch.zeros(1, 4, requires_grad=True)
    unit(zeros).sum().backward()
    assert zeros.grad is not None
    assert not zeros.grad.any()


def test_the_mlp_reads_feature_vectors() -> None:
    logits, embedding = FeatureMLP(6, 128, features=420)(torch.randn(3, 420))
    assert logits.shape == (3, 6)
    assert embedding.shape == (3, 128)


def test_the_counter_is_small_drops_in_training_only_and_cuts_extremes() -> None:
    """169 numbers to 9 classes: 169·128 + 128 + 128·256 + 256 + 256·9 + 9 = 57,097 parameters."""
    model = CounterNet(9, 256, features=169)
    assert count_parameters(model) == 57_097
    windows = torch.randn(3, 169)
    assert not torch.equal(model.train()(windows)[0], model(windows)[0])
    assert torch.equal(model.eval()(windows)[0], model(windows)[0])
    far = torch.full((1, 169), 4.0)
    assert torch.equal(model(far)[0], model(1000 * far)[0])
    wide = CounterNet(16, 256, features=1407)
    assert 149_000 < count_parameters(wide) <= 150_000


def test_steps_of_the_counter_do_not_grow_with_its_inputs() -> None:
    """Four times the numbers, each as large: s = ½, so a step moves the first layer a quarter."""

    def moved(features: int) -> float:
        torch.manual_seed(0)
        encoder = CounterNet(3, 8, features=features).eval().encoder
        until = list(encoder.children())[: 1 + list(encoder).index(encoder.first)]
        windows = torch.ones(1, features)
        before = torch.nn.Sequential(*until)(windows)
        before.sum().backward()
        with torch.no_grad():
            encoder.first.weight -= 0.1 * encoder.first.weight.grad
            return float((torch.nn.Sequential(*until)(windows) - before).mean())

    assert moved(4 * 169) == pytest.approx(moved(169), rel=1e-4)  # −0.1 · 169
    assert moved(169) == pytest.approx(-16.9, rel=1e-4)


def test_equal_keys_give_equal_weights_and_others_not() -> None:
    def first(key: Key) -> np.ndarray:
        model = build_model("tiny", classes=3, width=8, window_shape=(9, 9), key=key)
        return model.state_dict()["encoder.block1.conv.weight"].numpy()

    assert np.array_equal(first(Key(0)), first(Key(0)))
    assert not np.array_equal(first(Key(0)), first(Key(1)))


def test_counting_leaves_the_net_as_it_was() -> None:
    model = TinyConvNet4(3).train()
    flops(model, (10, 10))
    assert model.training
    assert next(model.parameters()).device.type == "cpu"


def test_wrong_nets_are_refused_with_a_remedy() -> None:
    def build(net: str, shape: tuple[int, ...]) -> None:
        build_model(net, classes=2, width=8, window_shape=shape, key=Key(0))

    with pytest.raises(PlanError, match="did you mean 'large'"):
        build("lage", (9, 9))
    with pytest.raises(PlanError, match="use architecture = 'counter' or 'mlp'"):
        build("tiny", (420,))
    with pytest.raises(PlanError, match="use tiny, middle or large"):
        build("mlp", (10, 10))


def test_nets_by_size_in_thirds() -> None:
    sizes = {"a": 10, "b": 60, "c": 20, "d": 50, "e": 30, "f": 40}
    assert assign_by_size(sizes) == {
        "a": "tiny", "c": "tiny", "e": "middle", "f": "middle", "d": "large", "b": "large",
    }  # fmt: skip
    assert assign_by_size({"only": 3}) == {"only": "tiny"}


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("size", [(1, 1), (7, 6), (60, 31)])
def test_costs_are_counted_on_the_shapes_that_a_window_really_has(
    kind: type[Model], size: tuple[int, int]
) -> None:
    model = kind(5, 16).eval()
    seen: dict[str, tuple[int, ...]] = {}
    for name, module in model.named_modules():
        if not list(module.children()):
            module.register_forward_hook(
                lambda _, given, made, name=name: seen.update({name: tuple(made.shape[1:])})
            )
    with torch.no_grad():
        model(torch.zeros(1, *size))
    assert {layer.name: layer.output for layer in layers(model, size)} == seen


def test_a_room_learns_without_torchs_compiler() -> None:
    """Loading it takes a second of the start of a command and of every worker."""
    work = """
import sys
import numpy as np
from fedapa import Room
from fedapa.learning.fit import Training, cross_entropy, fit
from fedapa.randomness import Key
windows = Key(0).numpy().normal(size=(12, 20, 10)).astype(np.float32)
room = Room.of("a", windows, [0, 1] * 6, architecture="large", width=16)
assert room.card.flops > 0
model = room.build()
fit(model, room, cross_entropy, Training(), key=Key(0))
room.predict(model)
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", work]).returncode == 0


def test_each_link_is_a_channel() -> None:
    """Two links of five subcarriers, side by side in a window, are two images of one window."""
    model = build_model("middle", classes=3, width=8, window_shape=(9, 10), key=Key(0), links=2)
    windows = torch.randn(4, 9, 10)
    images = torch.stack([windows[:, :, :5], windows[:, :, 5:]], dim=1)
    assert model.state_dict()["encoder.block1.conv.weight"].shape == (16, 2, 3, 3)
    model.eval()
    assert torch.equal(model(windows)[0], model(images)[0])
    with pytest.raises(PlanError, match="windows of 10 columns are not those of 3 links"):
        build_model("middle", classes=3, width=8, window_shape=(9, 10), key=Key(0), links=3)


@pytest.mark.parametrize("architecture", ["mlp", "counter"])
@pytest.mark.parametrize("batch", [1, 2, 7, 16, 41])
def test_batches_embedded_without_modules_have_the_same_bits(architecture: str, batch: int) -> None:
    model = build_model(architecture, classes=5, width=32, window_shape=(40,), key=Key(3)).eval()
    stream = (Key(4) / batch).numpy()
    batches = [
        torch.from_numpy(stream.normal(size=(batch, 40)).astype(np.float32)) for _ in range(3)
    ]
    for made, windows in zip(embed_each(model, batches), batches, strict=True):
        with torch.no_grad():
            expected = model.embed(windows)
        assert made.numpy().tobytes() == expected.numpy().tobytes()
        assert not made.requires_grad


def test_a_net_that_somebody_watches_goes_through_its_modules() -> None:
    seen: list[int] = []
    model = build_model("mlp", classes=5, width=32, window_shape=(40,), key=Key(3)).eval()
    first = next(iter(model.encoder.children()))
    first.register_forward_hook(lambda *_: seen.append(1))
    embed_each(model, [torch.zeros(2, 40)] * 3)
    assert len(seen) == 3
