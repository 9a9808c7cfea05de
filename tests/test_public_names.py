"""The front door: stable names, and nothing heavy behind it until it is asked for."""

import subprocess
import sys

import pytest

import fedapa


def test_all_is_sorted_and_every_name_is_there() -> None:
    assert list(fedapa.__all__) == sorted(fedapa.__all__)
    for name in fedapa.__all__:
        assert getattr(fedapa, name) is not None
    assert set(fedapa.__all__) <= set(dir(fedapa))


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'agregate'"):
        _ = fedapa.agregate


@pytest.mark.parametrize("what", ["import fedapa", "import fedapa.cli"])
def test_import_loads_neither_torch_nor_matplotlib(what: str) -> None:
    code = f"{what}; import sys; print([m for m in ('torch', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_signatures_are_the_promised_ones() -> None:
    import inspect

    expected = {
        "aggregate_prototypes": ["prototypes", "present", "temperature"],
        "pad_prototypes": ["prototypes", "present"],
        "class_prototypes": ["embeddings", "labels", "classes"],
        "prototype_contrast": ["embeddings", "labels", "prototypes", "temperature", "present"],
        "read_capture": ["path", "chip"],
        "warm_up": ["round", "warm_rounds", "minimum", "maximum"],
        "TinyConvNet4": ["classes", "width"],
        "MiddleConvNet4": ["classes", "width"],
        "LargeConvNet4": ["classes", "width"],
    }
    for name, arguments in expected.items():
        found = list(inspect.signature(getattr(fedapa, name)).parameters)
        assert found[: len(arguments)] == arguments, name
