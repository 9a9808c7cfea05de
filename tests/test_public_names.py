"""The front door: stable names, and nothing heavy behind it until it is asked for.

Inside the house every module says in ``__all__`` what the others may import.
"""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

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


SOURCE = Path(fedapa.__file__).parent


def module_name(path: Path) -> str:
    words = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(words).removesuffix(".__init__")


MODULES = {module_name(path): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}


def offered(module: str) -> list[str]:
    """The names in the ``__all__`` of a module; none where it has none."""
    for statement in MODULES[module].body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(statement.value)
            return names
    return []


def names_used(tree: ast.Module) -> set[tuple[str, str]]:
    """(module, name) of all that a module takes from others, imported or as an attribute."""
    imported = {
        (node.module, alias.name, alias.asname or alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in MODULES
        for alias in node.names
    }
    modules = {own: f"{module}.{name}" for module, name, own in imported}
    modules = {own: module for own, module in modules.items() if module in MODULES}
    attributes = {
        (modules[node.value.id], node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
    }
    return {(module, name) for module, name, _ in imported} | attributes


def test_a_module_imports_only_what_another_offers() -> None:
    past = [
        f"{user} takes {module}.{name}"
        for user, tree in MODULES.items()
        for module, name in sorted(names_used(tree))
        if f"{module}.{name}" not in MODULES
        and not name.startswith("__")  # fedapa.__version__
        and name not in offered(module)
    ]
    assert not past, "put it into __all__, or leave it alone"


def by_kind(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions, as ruff sorts them."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_what_a_module_offers_exists_and_is_sorted() -> None:
    for module in MODULES:
        names = offered(module)
        assert names == sorted(names, key=by_kind), module
        for name in names:
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
