"""``fedapa algorithms``: what there is to run."""

from fedapa.cli.options import Json
from fedapa.cli.output import print_json, print_out

__all__ = ["algorithms"]


def algorithms(as_json: Json = False) -> None:
    """List the algorithms: what travels, where from, and their settings.

    Example: fedapa algorithms
    """
    from fedapa.algorithms import find, names, summary_of
    from fedapa.algorithms.algorithm import settings_of
    from fedapa.report.tables.table import Table, rich_table

    kinds = {name: find(name) for name in names()}
    if as_json:
        print_json(
            {
                name: {
                    "title": kind.title,
                    "summary": summary_of(kind),
                    "travels": kind.travels,
                    "citation": kind.citation,
                    "settings": settings_of(kind),
                }
                for name, kind in kinds.items()
            }
        )
        return
    headings = ["Name", "What", "What travels", "Source"]
    rows = [[name, summary_of(kind), kind.travels, kind.citation] for name, kind in kinds.items()]
    print_out(rich_table(Table("Algorithms", headings, rows, text_columns=4)))
    for name, kind in kinds.items():
        settings = ", ".join(f"{key} = {value}" for key, value in settings_of(kind).items())
        print_out(f"{name}: {settings or 'no settings of its own'}")
