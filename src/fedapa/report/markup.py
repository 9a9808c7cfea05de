"""A sheet as Markdown, LaTeX or HTML, and the frame of a page: no script, nothing fetched."""

import html
import re
from collections.abc import Iterable, Sequence

from fedapa.report.tables import Sheet

__all__ = ["SIMULATED", "frame", "html_table", "latex", "markdown", "markdown_text"]

SIMULATED = (
    '<p class="simulated"><strong>SIMULATED rooms.</strong> The windows behind these numbers were '
    "computed, not measured: they show that the software works, not how well people are counted in "
    "a real room.</p>"
)

_CSS = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .2rem; }
.simulated { background: #fff4d6; border-left: .3rem solid #e69f00; padding: .6rem 1rem; }
.published { border: 1px solid #888; border-radius: .3rem; padding: 0 1rem; margin: 1.5rem 0; }
table { border-collapse: collapse; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #ddd; }
.word { text-align: left; } .over { text-align: center; } .group td { border-top: 2px solid #888; }
thead th { border-bottom: 2px solid #888; } td { white-space: nowrap; }
.dense { font-size: .71rem; } .dense th, .dense td { padding: .25rem .22rem; }
.wide { overflow-x: auto; } .note { color: #555; font-size: .9rem; } code { background: #f2f2f2; }
figure { margin: .6rem 0; } pre { overflow-x: auto; }
@media print { figure, tr { break-inside: avoid; } .dense { font-size: 6pt; } }
""".strip()

_LETTERS = 84
"""Letters in a line of a table that fit on a page; with more they are set smaller."""

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "%&_#$"},
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "…": r"\dots{}",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "¼": r"$\frac{1}{4}$",
    "½": r"$\frac{1}{2}$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "√": r"$\surd$",
    "α": r"$\alpha$",
    "θ": r"$\theta$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "ξ": r"$\xi$",
    "ρ": r"$\rho$",
    "σ": r"$\sigma$",
    "τ": r"$\tau$",
    "Σ": r"$\Sigma$",
}
"""Signs that LaTeX reads otherwise, or that its usual fonts lack."""


def markdown(sheet: Sheet) -> str:
    """A sheet as a Markdown table between its title and its note."""
    ruler = ["---" if index < sheet.text_columns else "---:" for index in range(_width(sheet))]
    lines = [sheet.plain_headings, ruler, *sheet.rows]
    table = "\n".join(
        "| " + " | ".join(cell if line is ruler else markdown_text(cell) for cell in line) + " |"
        for line in lines
    )
    return f"**{markdown_text(sheet.title)}**\n\n{table}\n\n{markdown_text(sheet.note)}\n"


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, also in a table."""
    return re.sub(r"([\\`*_<>|#\[\]$~]|&(?=#?\w+;))", r"\\\1", text)


def latex(sheet: Sheet) -> str:
    """A sheet as a LaTeX table: needs no package, but ``graphicx`` to be narrowed by its user."""
    columns = "".join("l" if index < sheet.text_columns else "r" for index in range(_width(sheet)))
    lines = [_latex_row(sheet.headings), r"\hline"]
    if sheet.spans:
        lines.insert(0, _latex_spans(sheet.spans))
    for index, row in enumerate(sheet.rows):
        if index in sheet.breaks:
            lines.append(r"\hline")
        lines.append(_latex_row(row))
    caption = ". ".join(_latex_text(text.rstrip(".")) for text in (sheet.title, sheet.note) if text)
    return "\n".join(
        [
            r"\begin{table}[htbp]",
            r"\centering",
            rf"\caption{{{caption}.}}",
            r"\footnotesize",
            r"\setlength{\tabcolsep}{4pt}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\hline",
            *lines,
            r"\hline",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_row(cells: Iterable[str]) -> str:
    line = " & ".join(_latex_text(cell) for cell in cells)
    # After the \\ of the line above, LaTeX takes these for an argument.
    return ("{}" if line.startswith(("[", "*")) else "") + line + r" \\"


def _latex_spans(spans: Sequence[tuple[str, int]]) -> str:
    cells = [
        rf"\multicolumn{{{width}}}{{c}}{{{_latex_text(title)}}}" if title else "& " * (width - 1)
        for title, width in spans
    ]
    return " & ".join(cells) + r" \\"


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def html_table(sheet: Sheet) -> str:
    """A sheet as an HTML table with its title and note below."""
    over = "".join(
        f"<th class=over colspan={width}>{_text(name)}</th>" for name, width in sheet.spans
    )
    head = (f"<tr>{over}</tr>" if over else "") + (
        f"<tr>{_cells('th', sheet.headings, sheet.text_columns)}</tr>"
    )
    rows = "".join(
        f"<tr{' class=group' if index in sheet.breaks else ''}>"
        f"{_cells('td', row, sheet.text_columns)}</tr>"
        for index, row in enumerate(sheet.rows)
    )
    return (
        f'<div class="wide"><table{" class=dense" if _letters(sheet) > _LETTERS else ""}>'
        f"<thead>{head}</thead>"
        f"<tbody>{rows}</tbody></table></div>"
        f'<p class="note">{_text(sheet.title)}. {_text(sheet.note.rstrip("."))}.</p>'
    )


def _cells(tag: str, cells: Sequence[str], words: int) -> str:
    return "".join(
        f"<{tag}{' class=word' if index < words else ''}>{_text(cell)}</{tag}>"
        for index, cell in enumerate(cells)
    )


def _text(text: str) -> str:
    return html.escape(text)


def frame(title: str, parts: Iterable[str]) -> str:
    """A whole page from its parts, which stand between ``<main>`` and ``</main>``."""
    body = "\n".join(parts)
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_CSS}</style></head><body><main>\n{body}\n</main></body></html>\n"
    )


def _width(sheet: Sheet) -> int:
    return len(sheet.headings)


def _letters(sheet: Sheet) -> int:
    """How many letters a line has where every cell is as wide as its column's widest."""
    return sum(max(map(len, cells)) for cells in zip(*sheet.rows, strict=True))
