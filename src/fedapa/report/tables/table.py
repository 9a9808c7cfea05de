"""A table as text, and how it is written: for the terminal, in Markdown, LaTeX and HTML."""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table as RichTable

from fedapa.errors import one_line

__all__ = [
    "Table",
    "html_table",
    "latex",
    "markdown",
    "markdown_text",
    "reached_by_key",
    "rich_table",
]

_LETTERS = 84
"""Letters in a line of a table that fit on a page; with more they are set smaller."""
_COLUMNS = 10
"""Columns that fit on a page, however short their cells are."""

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "%&_#$"},
    "–": "--",
    "…": r"\dots{}",
    **{sign: f"${sign}$" for sign in "<>"},
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "¼": r"$\frac{1}{4}$",
    "½": r"$\frac{1}{2}$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "√": r"$\surd$",
    **{
        letter: rf"$\{name}$"
        for letter, name in zip(
            "αθλμξρστΣ",
            ("alpha", "theta", "lambda", "mu", "xi", "rho", "sigma", "tau", "Sigma"),
            strict=True,
        )
    },
}
"""Signs that LaTeX reads otherwise, or that its usual fonts lack."""


@dataclass(frozen=True)
class Table:
    """A table: a title, headings and rows, all of them text."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    text_columns: int = 1
    """How many columns, from the left, are words; the others are numbers."""
    breaks: Sequence[int] = ()
    """Rows above which a line is drawn: where one group ends and the next begins."""
    spans: Sequence[tuple[str, int]] = ()
    """A line above the headings: a title and how many columns it stands over, from the left."""

    def __post_init__(self) -> None:
        """Every cell one printable line: labels and names come from strangers' files and rooms."""
        object.__setattr__(self, "headings", [one_line(heading) for heading in self.headings])
        object.__setattr__(self, "rows", [[one_line(cell) for cell in row] for row in self.rows])
        for words in ("title", "note"):
            lines = getattr(self, words).split("\n")
            object.__setattr__(self, words, "\n".join(map(one_line, lines)))

    @property
    def plain_headings(self) -> list[str]:
        """One line of headings: those under a span with its title before them."""
        above = [title for title, width in self.spans for _ in range(width)]
        above += [""] * (len(self.headings) - len(above))
        return [
            f"{over}: {heading}" if over and heading else over or heading
            for over, heading in zip(above, self.headings, strict=True)
        ]

    def alignment(self, words: str, numbers: str) -> list[str]:
        """One mark per column: one for words, another for numbers."""
        return [words] * self.text_columns + [numbers] * (len(self.headings) - self.text_columns)


def rich_table(table: Table) -> RichTable:
    """A table for the terminal."""
    shown = RichTable(
        title=table.title, caption=table.note, box=box.SIMPLE_HEAD, title_justify="left"
    )
    for heading, side in zip(table.plain_headings, table.alignment("left", "right"), strict=True):
        shown.add_column(heading, justify="left" if side == "left" else "right")
    for number, row in enumerate(table.rows):
        if number in table.breaks:
            shown.add_section()
        shown.add_row(*row)
    return shown


def markdown(table: Table) -> str:
    """A Markdown table between its title and its note."""
    lines = [
        map(markdown_text, table.plain_headings),
        table.alignment("---", "---:"),
        *(map(markdown_text, row) for row in table.rows),
    ]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"**{markdown_text(table.title)}**\n\n{text}\n\n{markdown_text(table.note)}\n"


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, also in a table."""
    return re.sub(r"([\\`*_<>|#\[\]$~]|&(?=#?\w+;))", r"\\\1", text)


def latex(table: Table) -> str:
    """A LaTeX table: needs no package, but ``graphicx`` to be narrowed by its user."""
    over = [
        rf"\multicolumn{{{width}}}{{c}}{{{_latex_text(title)}}}" if title else "& " * (width - 1)
        for title, width in table.spans
    ]
    lines = [" & ".join(over) + r" \\"] if over else []
    lines += [_latex_row(table.headings), r"\hline"]
    for number, row in enumerate(table.rows):
        if number in table.breaks:
            lines.append(r"\hline")
        lines.append(_latex_row(row))
    caption = ". ".join(_latex_text(text.rstrip(".")) for text in (table.title, table.note) if text)
    body = "\n".join([r"\hline", *lines, r"\hline"])
    return (
        "\\begin{table}[htbp]\n\\centering\n"
        f"\\caption{{{caption}.}}\n\\footnotesize\n\\setlength{{\\tabcolsep}}{{4pt}}\n"
        f"\\begin{{tabular}}{{{''.join(table.alignment('l', 'r'))}}}\n{body}\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def _latex_row(cells: Iterable[str]) -> str:
    line = " & ".join(_latex_text(cell) for cell in cells)
    # After the \\ of the line above, LaTeX takes these for an argument.
    return ("{}" if line.startswith(("[", "*")) else "") + line + r" \\"


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def html_table(table: Table) -> str:
    """An HTML table with its title and note below; it scrolls where it is wider than the page."""
    over = "".join(
        # Above a column that stays, nothing slides by.
        f'<th class="{"over first" if not place and (name, width) == ("", 1) else "over"}" '
        f"colspan={width}>{html.escape(name)}</th>"
        for place, (name, width) in enumerate(table.spans)
    )
    head = (f"<tr>{over}</tr>" if over else "") + f"<tr>{_cells('th', table, table.headings)}</tr>"
    rows = "".join(
        f"<tr{' class=group' if number in table.breaks else ''}>{_cells('td', table, row)}</tr>"
        for number, row in enumerate(table.rows)
    )
    letters = sum(max(map(len, cells)) for cells in zip(*table.rows, strict=True))
    wide = letters > _LETTERS or len(table.headings) > _COLUMNS  # each cell as wide as its column
    return (
        f'<div class="wide"{reached_by_key(table.title)}><table{" class=dense" if wide else ""}>'
        f"<thead>{head}</thead><tbody>{rows}</tbody></table></div>"
        f'<p class="note">{html.escape(table.title)}. {html.escape(table.note.rstrip("."))}.</p>'
    )


def reached_by_key(name: str) -> str:
    """Attributes of what may be wider than a page, so that it can be scrolled without a mouse."""
    return f' tabindex="0" role="region" aria-label="{html.escape(name)}"'


def _cells(tag: str, table: Table, cells: Sequence[str]) -> str:
    """A row; its first cell says whose numbers they are, and stays where it is in scrolling."""
    sides = table.alignment("word", "")
    made = []
    for column, (side, cell) in enumerate(zip(sides, cells, strict=True)):
        kind = tag if column else "th"
        scope = "" if column or tag == "th" else " scope=row"
        names = " ".join(name for name in ("" if column else "first", side) if name)
        named = f' class="{names}"' if names else ""
        made.append(f"<{kind}{scope}{named}>{html.escape(cell)}</{kind}>")
    return "".join(made)
