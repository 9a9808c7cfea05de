"""Margins: FedAPA minus Local under several causes, and the part of its losses without exchange.

A setting here is a sweep with three lines, Local, FedAPA and its control, at the same values. All
differences are paired over seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedapa.algorithms import find
from fedapa.algorithms.local import Local
from fedapa.evaluation.record import LAST
from fedapa.evaluation.results import REFERENCE, Outcome, Paired, Row, Setting, paired, spread
from fedapa.report.captions import caption, number_of
from fedapa.report.tables.comparison import cell, difference_text, reading, value_text
from fedapa.report.tables.table import Table

__all__ = ["AS_IT_IS", "Margin", "margins_of", "margins_table", "train_loss_at"]

AS_IT_IS = "as it is"
"""The value of the rows in which nothing is changed."""
_NONE = "–"


@dataclass(frozen=True)
class Margin:
    """What FedAPA adds to Local under one cause, at one horizon."""

    cause: str
    horizon: int
    local: Row
    reference: Row
    control: Row
    whole: Paired
    """FedAPA − Local, as shares."""
    losses: Paired
    """Self-prototypes − Local: what the losses give without any exchange."""
    exchange: Paired
    """FedAPA − self-prototypes."""
    people: Paired | None
    """FedAPA − Local, MAE of the most probable count; none for categories."""
    moved: Paired | None
    """The margin minus that of the protocol as it is, at the same horizon; none of itself."""

    @property
    def is_base(self) -> bool:
        """Whether nothing is changed."""
        return self.cause == AS_IT_IS

    @property
    def label(self) -> str:
        """What is changed; of the protocol as it is after how many rounds."""
        after = number_of(self.horizon, "round")
        return f"{self.cause}, {after}" if self.is_base else self.cause


def margins_of(setting: Setting) -> list[Margin]:
    """The protocol as it is at every horizon, then every cause after all rounds."""
    titles = [find(name).title for name in (Local.name, REFERENCE, find(REFERENCE).control)]
    by = {(row.group, row.value): row for row in setting.deployed}
    causes = list(dict.fromkeys(row.value for row in setting.deployed if row.value is not None))
    asked = [(AS_IT_IS, horizon) for horizon in setting.horizons]
    asked += [(str(cause), setting.rounds) for cause in causes if cause != AS_IT_IS]
    found = []
    for cause, horizon in asked:
        rows = [by.get((title, cause)) for title in titles]
        base = [by.get((title, AS_IT_IS)) for title in titles]
        margin = _margin(setting, cause, horizon, rows, base)
        if margin is not None:
            found.append(margin)
    return found


def _margin(
    setting: Setting,
    cause: str,
    horizon: int,
    rows: Sequence[Row | None],
    base: Sequence[Row | None],
) -> Margin | None:
    local, mine, control = rows
    if local is None or mine is None or control is None:
        return None
    whole = setting.against(mine, local, horizon)
    losses = setting.against(control, local, horizon)
    exchange = setting.against(mine, control, horizon)
    if whole is None or losses is None or exchange is None:
        return None
    people = setting.against(mine, local, horizon, "mae") if setting.counts_people else None
    moved = None
    if cause != AS_IT_IS and base[0] is not None and base[1] is not None:
        here, there = _gaps(mine, local, horizon), _gaps(base[1], base[0], horizon)
        if here is not None and there is not None and len(here) == len(there):
            moved = paired(here, there)
    return Margin(cause, horizon, local, mine, control, whole, losses, exchange, people, moved)


def _gaps(one: Row, other: Row, horizon: int) -> list[float] | None:
    """The margin of every seed."""
    mine, theirs = one.metrics(horizon, "accuracy"), other.metrics(horizon, "accuracy")
    if mine is None or theirs is None:
        return None
    return [a - b for a, b in zip(mine, theirs, strict=True)]


def train_loss_at(row: Row, horizon: int) -> float | None:
    """Cross-entropy on train windows: the mean of the last five rounds up to a horizon, and seeds.

    None where some run has no record of it.
    """
    means = [_loss(outcome, horizon) for outcome in row.outcomes]
    known = [mean for mean in means if mean is not None]
    return spread(known).mean if known and len(known) == len(means) else None


def _loss(outcome: Outcome, horizon: int) -> float | None:
    last = outcome.train_loss[max(0, horizon - LAST) : horizon]
    there = [value for value in last if value is not None]
    return float(np.mean(there)) if there and len(outcome.train_loss) >= horizon else None


def margins_table(setting: Setting) -> Table:
    """A line for each cause: the margin, its two parts, by how much it moved, the train loss."""
    margins = margins_of(setting)
    rows = [
        [
            margin.label,
            cell(margin.local.metrics(margin.horizon, "accuracy"), "accuracy"),
            difference_text(margin.whole, "accuracy"),
            difference_text(margin.losses, "accuracy"),
            difference_text(margin.exchange, "accuracy"),
            _NONE if margin.moved is None else difference_text(margin.moved, "accuracy"),
            _NONE if margin.people is None else difference_text(margin.people, "mae"),
            *(_loss_text(row, margin.horizon) for row in (margin.local, margin.reference)),
        ]
        for margin in margins
    ]
    reference, control = (find(name).title for name in (REFERENCE, find(REFERENCE).control))
    return Table(
        title=f"{reference} minus {Local.title}, one cause at a time",
        headings=[
            *("Cause", f"{Local.title} (%)", f"{reference} − {Local.title}"),
            *(f"{control} − {Local.title}", f"{reference} − {control}"),
            *("moved by", f"MAE, {reference} − {Local.title}"),
            *(f"train loss, {Local.title}", f"train loss, {reference}"),
        ],
        rows=rows,
        note=". ".join(
            [
                f"Accuracy in points; the whole margin is the sum of its losses' part ({control} − "
                f"{Local.title}) and its exchange's ({reference} − {control})",
                "Moved by: the margin minus that of the protocol as it is after as many rounds",
                "Train loss: cross-entropy in the last rounds, mean over rooms; "
                f"{_uniform(setting)} is a guess among all classes",
                *reading(len(setting.seeds), 4 * len(margins), led=False),
                f"The protocol as it is: {caption(setting)}",
            ]
        ),
        breaks=[len([margin for margin in margins if margin.is_base])],
    )


def _uniform(setting: Setting) -> str:
    """The cross-entropy of equal probabilities, log |C|."""
    return f"{np.log(len(setting.data['classes'])):.2f}"


def _loss_text(row: Row, horizon: int) -> str:
    loss = train_loss_at(row, horizon)
    return _NONE if loss is None else value_text(round(loss, 3))
