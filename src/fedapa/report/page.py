"""One self-contained HTML page about some runs: no script, no network, prints well."""

import html
from collections.abc import Sequence
from pathlib import Path

from fedapa.federation.run import Run
from fedapa.files import write_text
from fedapa.report import figures
from fedapa.report.markup import SIMULATED, frame, html_table
from fedapa.report.tables import caption, comparison, per_room, titles

__all__ = ["write_page"]


def write_page(path: Path, runs: Sequence[Run], *, title: str) -> None:
    """Write the page of runs that share their data."""
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="note">{html.escape(caption(runs[0]))}</p>',
    ]
    if any(run.synthetic for run in runs):
        parts.append(SIMULATED)
    parts += ["<h2>Comparison</h2>", html_table(comparison(runs))]
    parts += ["<h2>Accuracy over rounds</h2>", figures.svg(figures.accuracy_curves(runs))]
    parts.append('<p class="note">The band is ± one standard deviation over rooms.</p>')
    parts += ["<h2>Room by room</h2>", html_table(per_room(runs))]
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
    write_text(path, frame(title, parts))


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
