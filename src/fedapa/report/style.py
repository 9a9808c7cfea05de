"""How every figure looks and is written: fonts, colours, the look of the n-th row, sizes, files.

Rows differ in colour, line and marker at once, so that a grey print still tells them apart; the
colours are told apart by colour-blind readers too. The caption is part of each figure.
"""

import io
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from PIL import Image

from fedapa.errors import PlanError
from fedapa.files import write_bytes

__all__ = [
    "DASHES",
    "HATCHES",
    "MARKERS",
    "PALETTE",
    "SMALL",
    "STRETCH",
    "STYLE",
    "WIDTH",
    "drawn",
    "families",
    "figure_kind",
    "legend_label",
    "look",
    "places",
    "save",
    "shortened",
    "svg",
]

WIDTH = 7.0
"""Inches: a page's text, or two columns."""
_ON_PAGE = 1.35
"""How much larger figures are on a page: its column is 9.5 inches wide."""
SMALL = 6.5
"""Points of captions and other small print."""
PALETTE = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#882255", "#888888", "#999933"),
)
"""Okabe and Ito's colours, the darker ones first, then three of Tol's."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
DASHES = ("-", "--", "-.", (0, (1, 1.2)), (0, (5, 1, 1, 1, 1, 1)))
STRETCH = 0.25
"""How much longer an axis may become for a line beyond the curves; further off it is said."""
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "++", "oo")

_OTHER_SCRIPTS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Source Han Sans", "WenQuanYi Zen Hei"),
    *("Droid Sans Fallback", "Hiragino Sans", "Microsoft YaHei", "Malgun Gothic"),
    "Arial Unicode MS",
)
"""Fonts that know what the usual one does not: names of rooms may be in any script."""


def families(installed: Iterable[str]) -> list[str]:
    """The usual font, then those of the others that are there; asking for absent ones warns."""
    there = set(installed)
    return ["DejaVu Sans", *(name for name in _OTHER_SCRIPTS if name in there)]


STYLE: dict[Any, Any] = {
    "font.family": families(font.name for font in font_manager.fontManager.ttflist),
    "font.size": 8,
    "axes.titlesize": 8.5,
    "legend.fontsize": 7.5,
    "svg.fonttype": "none",  # text stays text: small files, searchable pages
    "svg.hashsalt": "fedapa",  # equal figures have equal bytes
    "text.parse_math": False,  # a "$" in the name of a file or a class is a dollar
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
}


@contextmanager
def drawn(height: float, caption: str, *, width: float = WIDTH) -> Iterator[Figure]:
    """A figure in inches with its caption in small print below everything else."""
    with matplotlib.rc_context(STYLE):
        text = textwrap.fill(caption, round(18.5 * width))
        below = (SMALL * 1.25 * (text.count("\n") + 1) + 5) / 72 / height
        layout = ConstrainedLayoutEngine(rect=(0, below, 1, 1 - below))
        figure = Figure(figsize=(width, height), layout=layout)
        figure.text(
            0.008, 3 / 72 / height, text, fontsize=SMALL, color="#444444", va="bottom", wrap=False
        )
        yield figure


def look(number: int) -> dict[str, Any]:
    """Colour, line and marker of the n-th row."""
    return {
        "color": PALETTE[number % len(PALETTE)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4,
    }


def places(names: Sequence[str]) -> dict[str, int]:
    """Which look each row has: its algorithm's where nobody took it, else the first that is free.

    Further methods share looks with the paper's: no panel holds both.
    """
    from fedapa import algorithms  # with torch, which a waterfall does not need

    usual = {name: algorithms.find(name).look for name in names if name in algorithms.names()}
    chosen: dict[str, int] = {}
    for name in sorted(names, key=lambda name: usual.get(name) is None):
        taken = set(chosen.values())
        free = (place for place in range(len(names)) if place not in taken)
        own = usual.get(name)
        chosen[name] = next(free) if own is None or own in taken else own
    return chosen


def shortened(name: str, most: int = 18) -> str:
    """A long name keeps its end: that is where names of a set differ."""
    return name if len(name) <= most else f"…{name[1 - most :]}"


def legend_label(label: str) -> str:
    """A label that a legend shows: matplotlib leaves out those that begin with "_"."""
    return f" {label}" if label.startswith("_") else label


def save(figure: Figure, path: Path, *, dpi: int = 100) -> None:
    """Write a figure as PNG, SVG or PDF, by the name's ending, whole or not at all."""
    kind = figure_kind(path)
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    written = io.BytesIO()
    # Letters as outlines: the same figure whatever fonts a reader has.
    with matplotlib.rc_context({"svg.hashsalt": "fedapa"}), _any_letters():
        figure.savefig(written, format=kind, dpi=dpi, metadata=dated)
    if kind == "png":  # 256 colours are enough for a figure, and a third of the size
        image = Image.open(written).convert("RGB").quantize(256, dither=Image.Dither.NONE)
        written = io.BytesIO()
        image.save(written, format="png", optimize=True)
    write_bytes(path, written.getvalue())


@contextmanager
def _any_letters() -> Iterator[None]:
    """Names of rooms may have letters that the font lacks: boxes in a figure, not in a page."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
        yield


def figure_kind(path: Path) -> str:
    """png, svg or pdf, by the name's ending; ask before long work whose figure goes there."""
    kind = path.suffix.lstrip(".").lower()
    if kind not in ("png", "svg", "pdf"):
        raise PlanError(f"{path}: figures are written as .png, .svg or .pdf")
    return kind


def svg(figure: Figure) -> str:
    """The figure as an SVG element to put into a page: larger than in print, as the page's text is.

    ``--wide`` is its width there; page.css makes it smaller where the page is narrow.
    """
    with matplotlib.rc_context(STYLE), _any_letters():
        buffer = io.StringIO()
        nothing = {"Date": None, "Creator": None}
        figure.savefig(buffer, format="svg", metadata=nothing, facecolor="none")
    text = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    return re.sub(
        r' width="([^"]*)pt" height="[^"]*pt"',
        lambda found: f' style="--wide: {_ON_PAGE * float(found[1]):.4g}pt"',
        text[text.index("<svg") :],
        count=1,
    )
