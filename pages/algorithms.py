"""The made parts of docs/algorithms.md: what the files in src/fedapa/algorithms say of themselves.

The page says ``<!-- made: overview -->``, ``variants`` or ``files``, and what stands between that
and ``<!-- end -->`` is made anew from the classes and their docstrings by ``make pages``.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedapa import algorithms
from fedapa.algorithms import (
    Algorithm,
    Dimensions,
    base_of,
    find,
    is_variant,
    names,
    settings_of,
    summary_of,
)

__all__ = ["PAGE", "filled"]

PAGE = Path(__file__).parents[1] / "docs" / "algorithms.md"

_BLOCK = re.compile(r"<!-- made: (?P<part>\w+) -->\n.*?<!-- end -->", re.DOTALL)
_ANY = Dimensions(rooms=6, classes=21, width=256, parameters=1, batch_norm=0, classifier=0)
"""Formulas do not depend on the numbers."""


def filled(text: str) -> str:
    """The page with every made part anew."""

    def part(block: re.Match[str]) -> str:
        return (
            f"<!-- made: {block['part']} -->\n\n{_PARTS[block['part']]().strip()}\n\n<!-- end -->"
        )

    return _BLOCK.sub(part, text)


def _ours() -> list[type[Algorithm]]:
    """Without those that other packages bring."""
    kinds = [find(name) for name in names()]
    return [kind for kind in kinds if kind.__module__.startswith(f"{algorithms.__name__}.")]


def _files() -> list[type[Algorithm]]:
    """The algorithms that have a file of their own, the paper's and the oldest first."""
    kinds = [kind for kind in _ours() if not is_variant(kind)]
    groups = ("paper", "more", "control")
    return sorted(kinds, key=lambda kind: (groups.index(kind.group), kind.year, kind.name))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |\n"


def _overview() -> str:
    rows = [
        _row(
            f"`{kind.name}`",
            _plain(summary_of(kind)),
            kind.travels,
            (kind().sends(_ANY) or ("–",))[0],
            kind.citation + (f", *{kind.paper}*" if kind.paper else ""),
        )
        for kind in _files()
    ]
    heading = _row("Name", "What it is", "What travels", "Numbers per room and round", "Source")
    return heading + "|---|---|---|---|---|\n" + "".join(rows)


def _variants() -> str:
    kinds = [kind for kind in _ours() if is_variant(kind)]
    controls = {kind.control: kind.title for kind in _files() if kind.control}
    rows = [
        _row(
            f"`{kind.name}`",
            base_of(kind).title,
            _plain(summary_of(kind)),
            kind.travels,
            controls.get(kind.name, "–"),
        )
        for kind in kinds
    ]
    return (
        _row("Name", "Of", "What it is", "What travels", "Control of")
        + "|---|---|---|---|---|\n"
        + "".join(rows)
    )


def _one_by_one() -> str:
    return "\n".join(_about(kind) for kind in _files())


def _about(kind: type[Algorithm]) -> str:
    """An algorithm's own words, and its settings."""
    said = _plain(inspect.getdoc(inspect.getmodule(kind)) or "")
    said = said[len(kind.title) + 2 :] if said.startswith(f"{kind.title}: ") else said
    heading = f"### {kind.title} (`{kind.name}`)\n\n{said[0].upper()}{said[1:]}\n"
    meanings = _meanings(kind)
    above = [cls for cls in kind.__mro__[1:] if issubclass(cls, Algorithm)]
    base = next((cls for cls in above if "name" in vars(cls)), Algorithm)
    inherited = [key for key in settings_of(kind) if _meanings(base).get(key) == meanings[key]]
    own = {key: value for key, value in settings_of(kind).items() if key not in inherited}
    table = ""
    if own:
        rows = [
            _row(f"`{key}`", _value(value), _plain(meanings[key])) for key, value in own.items()
        ]
        table = "\n" + _row("Setting", "Default", "Meaning") + "|---|---|---|\n" + "".join(rows)
    also = ""
    if inherited:
        also = f"\nAlso {base.title}'s settings: {', '.join(f'`{key}`' for key in inherited)}.\n"
    return heading + table + also + _tuned(kind)


def _tuned(kind: type[Algorithm]) -> str:
    """What ``fedapa tune`` looks for; nothing where there is nothing."""
    spans, longer = kind.tunables(100), kind.tunables(200)
    told = [
        f"`{key.partition('.')[2]}` from {span.low:g} to "
        + (f"{span.high:g}" if longer[key] == span else "the number of rounds")
        for key, span in spans.items()
    ]
    return f"\n`fedapa tune` looks for {', '.join(told)}.\n" if told else ""


def _meanings(kind: type[Algorithm]) -> dict[str, str]:
    """Setting → the docstring below it, from the class that says it last."""
    meanings: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        if issubclass(cls, Algorithm):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
            assert isinstance(tree, ast.ClassDef)
            for line, below in zip(tree.body, tree.body[1:], strict=False):
                if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr):
                    meanings[ast.unparse(line.target)] = inspect.cleandoc(
                        ast.literal_eval(below.value)
                    )
    return meanings


def _value(value: Any) -> str:
    if value is None:
        return "–"
    shown = f"{value:g}" if isinstance(value, float) else str(value).lower()
    return f"`{shown}`" if isinstance(value, str) else shown


def _plain(text: str) -> str:
    """Docstring markup as Markdown; paragraphs stay, lines do not break."""
    paragraphs = text.replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


_PARTS: Mapping[str, Callable[[], str]] = {
    "overview": _overview,
    "variants": _variants,
    "files": _one_by_one,
}
