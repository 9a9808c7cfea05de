"""Docs are proven: what they name exists, what they show runs."""

import importlib
import re
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from fedapa.algorithms import find, names
from fedapa.algorithms.algorithm import settings_of
from fedapa.cli import app
from pages.algorithms import PAGE, filled

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def resolve(dotted: str) -> object:
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise AssertionError(dotted)


def test_every_function_in_the_equation_table_exists() -> None:
    text = (ROOT / "docs" / "equations.md").read_text()
    functions = set(re.findall(r"`(fedapa(?:\.\w+)+)`", text))
    assert len(functions) >= 8
    for dotted in functions:
        assert callable(resolve(dotted)), dotted


def test_every_test_in_the_equation_table_exists() -> None:
    file = ""
    for row in (ROOT / "docs" / "equations.md").read_text().splitlines():
        for path, test in re.findall(r"`(tests/[\w/]+\.py)?::(test_\w+)`", row):
            file = path or file
            assert f"def {test}(" in (ROOT / file).read_text(), (file, test)


def test_every_equation_of_the_method_is_in_the_table() -> None:
    text = (ROOT / "docs" / "equations.md").read_text()
    for label in [*(f"eqn_{number}" for number in range(4, 12)), "eq:padding"]:
        assert f"`{label}`" in text, label


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def shown_commands() -> list[str]:
    found = []
    for page in PAGES:
        for block in re.findall(r"```(?:\w*)\n(.*?)```", page.read_text(), re.S):
            joined = re.sub(r"\\\n\s*", " ", block)
            found += [line.strip() for line in joined.splitlines() if line.startswith("fedapa ")]
    return found


def test_the_commands_that_pages_show_have_those_flags() -> None:
    shown = shown_commands()
    assert len(shown) >= 5
    for line in shown:
        words = line.partition("#")[0].split()[1:]
        command = get_command(app)
        while words and hasattr(command, "commands"):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        flags = {flag for parameter in command.params for flag in parameter.opts}
        for word in words:
            if word.startswith("--"):
                assert word.partition("=")[0] in flags, line


def test_make_targets_that_pages_show_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)$", page.read_text(), re.M):
            name = target[0] or target[1]
            assert re.search(rf"^{name}:", makefile, re.M), (page, name)


def test_every_setting_says_what_it_is() -> None:
    """Settings are documented where they are defined: a docstring follows each."""
    for name in names():
        kind = find(name)
        source = Path(importlib.import_module(kind.__module__).__file__ or "").read_text()
        for setting in settings_of(kind):
            pattern = rf'^    {setting}: [^\n]*(?:\n        [^\n]*|\n    \))*\n    """'
            defined_here = re.search(rf"^    {setting}: ", source, re.M)
            assert not defined_here or re.search(pattern, source, re.M), f"{name}.{setting}"


def test_every_algorithm_and_every_setting_is_on_its_page() -> None:
    text = (ROOT / "docs" / "algorithms.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    listed = {word for row in rows for word in re.findall(r"`([\w-]+)`", row.split("|")[1])}
    settings = {setting for name in names() for setting in settings_of(find(name))}
    assert listed >= {*names(), *settings}, {*names(), *settings} - listed


def test_the_page_of_algorithms_is_what_their_files_say() -> None:
    """Made anew it is the same; if not, ``make pages`` and look at what changed."""
    text = PAGE.read_text()
    assert filled(text) == text
    assert "| `contrast` | 1 | μ; 0 is FedAvg. |" in filled(
        text.replace("0 is FedAvg", "0 is Local")
    )


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for page in (ROOT / "docs" / "decisions").glob("0*.md"):
        assert f"({page.name})" in listed, page.name


def test_every_dependency_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(each for extra in extras for each in extra)]
    reasons = " ".join(path.read_text() for path in (ROOT / "docs" / "decisions").glob("0*.md"))
    for requirement in wanted:
        name = re.split(r"[^\w-]", requirement)[0]
        assert name == "fedapa" or name in reasons, name
