"""One self-contained HTML page about some runs: no script, no network, prints well."""

import html
from collections.abc import Sequence
from pathlib import Path

from fedapa.federation.run import Run
from fedapa.files import write_text
from fedapa.report import figures
from fedapa.report.tables import Sheet, caption, comparison, per_room, titles

__all__ = ["write_page"]

_CSS = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.simulated { background: #fff4d6; border-left: .3rem solid #e69f00; padding: .6rem 1rem; }
table { border-collapse: collapse; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #ddd; }
.word { text-align: left; }
thead th { border-bottom: 2px solid #888; } td { white-space: nowrap; }
.wide { overflow-x: auto; } .note { color: #555; font-size: .9rem; } code { background: #f2f2f2; }
""".strip()


def write_page(path: Path, runs: Sequence[Run], *, title: str) -> None:
    """Write the page of runs that share their data."""
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="note">{html.escape(caption(runs[0]))}</p>',
    ]
    if any(run.synthetic for run in runs):
        parts.append(
            '<p class="simulated"><strong>SIMULATED rooms.</strong> The windows behind these '
            "numbers were computed, not measured: they show that the software works, not how well "
            "people are counted in a real room.</p>"
        )
    parts += ["<h2>Comparison</h2>", _table(comparison(runs))]
    parts += ["<h2>Accuracy over rounds</h2>", figures.svg(figures.accuracy_curves(runs))]
    parts.append('<p class="note">The band is ± one standard deviation over rooms.</p>')
    parts += ["<h2>Room by room</h2>", _table(per_room(runs))]
    parts.append(figures.svg(figures.room_curves(runs)))
    for name, run in zip(titles(runs), runs, strict=True):
        matrix = figures.weight_matrix(run)
        if matrix is not None:
            parts += [
                f"<h2>Who learns from whom ({html.escape(name)}, last round)</h2>",
                figures.svg(matrix),
                '<p class="note">Row i, column j: the weight of room j in the prototype mixture of '
                "room i (eqn_6), mean over the classes that room i holds.</p>",
            ]
    parts += ["<h2>How this was made</h2>", _provenance(runs)]
    body = "\n".join(parts)
    write_text(
        path,
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_CSS}</style></head><body>\n{body}\n</body></html>\n",
    )


def _table(sheet: Sheet) -> str:
    head = _cells("th", sheet.headings, sheet.text_columns)
    rows = "".join(f"<tr>{_cells('td', row, sheet.text_columns)}</tr>" for row in sheet.rows)
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        f'<p class="note">{html.escape(sheet.title)}. {html.escape(sheet.note)}.</p>'
    )


def _cells(tag: str, cells: Sequence[str], words: int) -> str:
    return "".join(
        f"<{tag}{' class=word' if index < words else ''}>{html.escape(cell)}</{tag}>"
        for index, cell in enumerate(cells)
    )


def _provenance(runs: Sequence[Run]) -> str:
    items = []
    for name, run in zip(titles(runs), runs, strict=True):
        made = run.environment
        packages = ", ".join(f"{name} {version}" for name, version in made["packages"].items())
        items.append(
            f"<li><strong>{html.escape(name)}</strong>: commit "
            f"<code>{html.escape(made['commit'][:12])}</code>, {html.escape(packages)}, Python "
            f"{html.escape(made['python'])}, {html.escape(made['processor'])} "
            f"({made['workers']} workers)<details><summary>plan</summary><pre>"
            f"{html.escape(run.plan.toml())}</pre></details></li>"
        )
    return f"<ul>{''.join(items)}</ul>"
