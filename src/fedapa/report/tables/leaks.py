"""Tables of what attacks found, from the results of ``fedapa reproduce leaks``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedapa.report.captions import data_text, number_of
from fedapa.report.tables.table import Table

__all__ = ["leak_caption", "leak_summary", "leak_tables", "membership_table"]

_WAYS = {
    "alone": "prototype and model file",
    "own room": "the same, and a room of one's own",
    "another room": "no prototype: that class in another room",
}


def leak_caption(results: Mapping[str, Any]) -> str:
    """Where the numbers come from."""
    commits = ", ".join(
        name[:10] + plus + rest
        for name, plus, rest in (commit.partition("+") for commit in results["commits"])
    )
    return (
        f"{data_text(results['rooms'], results['seeds'])} · "
        f"after {number_of(results['rounds'], 'round')} · commit {commits}"
    )


def leak_summary(results: Mapping[str, Any]) -> Table:
    """Every attack in a line, every way to send in a column."""
    told = [row for attack in _ATTACKS for row in results.get(attack, ())]
    titles = {row["case"]: row["title"] for row in told}

    def line(name: str, attack: str, cell: Callable[[Any], str], **wanted: str) -> list[str]:
        cells = [name]
        for case in titles:
            mine = [
                row
                for row in results.get(attack, ())
                if row["case"] == case and all(row[key] == wanted[key] for key in wanted)
            ]
            cells.append(cell(mine) if mine else "–")
        return cells

    def largest(rows: Sequence[Mapping[str, Any]]) -> str:
        return _interval(max(rows, key=lambda row: float(row["auc"]["value"]))["auc"], 1, 2)

    attackers = dict.fromkeys(row["attacker"] for row in results.get("membership", ()))
    questions = dict.fromkeys(row["question"] for row in results.get("identity", ()))
    lines = [
        line(
            f"Recording was used, {_WHO[attacker]} (AUC)", "membership", largest, attacker=attacker
        )
        for attacker in attackers
    ]
    if results.get("reconstruction"):
        lines += [
            line(
                f"Mean window of a class, from {told_of} (correlation)",
                "reconstruction",
                lambda rows: _interval(rows[0]["correlation"], 1, 2),
                way=way,
            )
            for way, told_of in _SUMMARY.items()
        ]
    for question in questions:
        lines.append(
            line(
                f"Whose set: {question} (% named, guess)",
                "identity",
                lambda rows: (
                    f"{_interval(rows[0]['first'], 100, 0)}, {_percent(rows[0]['chance'])}"
                    if rows[0]["first"]
                    else "–"
                ),
                question=question,
            )
        )
    costs = {row["case"]: _costs(row) for row in reversed(told)}
    lines.append(["Prototypes sent (%)", *(costs[case][0] for case in titles)])
    lines.append(["Accuracy (%)", *(costs[case][1] for case in titles)])
    return Table(
        "What a stranger learns, by what rooms send",
        ["Asked", *titles.values()],
        lines,
        note=(
            "AUC 0.5 is a guess, 1 is certainty; the largest of the attacks that this attacker can "
            "make, chosen afterwards, so it flatters the attacker. Correlation: of the window that "
            "was found with the true mean window; 0 is nothing, 1 is all but its size. Brackets: "
            "95 % of a bootstrap over rooms. "
            f"{_without_message(results)}{_one_round(results)}{leak_caption(results)}"
        ),
        breaks=[len(lines) - 2],
    )


_SUMMARY = {"alone": "prototype and model file", "another room": "another room, no prototype"}
_ATTACKS = ("membership", "reconstruction", "identity")
_WHO = {
    "server": "asked by the server",
    "room": "asked by another room",
    "model file": "asked by a server with the model file",
    "nobody": "asked by somebody without any message",
}


def _without_message(results: Mapping[str, Any]) -> str:
    """What the row of somebody without a message is for; nothing where there is none."""
    if not any(row["attacker"] == "nobody" for row in results.get("membership", ())):
        return ""
    return (
        "What somebody finds without any message is no leak: used and unused recordings differ by "
        "themselves, and others find as much for that reason alone. "
    )


def _one_round(results: Mapping[str, Any]) -> str:
    """Why identity was not asked over rounds; nothing where it was."""
    if all(row["first"] for row in results.get("identity", ())):
        return ""
    return (
        "Where every room sent in one round alone, identity over rounds and by classes is –: a set "
        "would be compared with itself. "
    )


def leak_tables(results: Mapping[str, Any]) -> dict[str, Table]:
    """What they say together, and a table for each attack that was made, by its name."""
    made = {
        "summary": leak_summary,
        "membership": membership_table,
        "reconstruction": _reconstruction_table,
        "identity": _identity_table,
    }
    return {
        name: table(results)
        for name, table in made.items()
        if name == "summary" or results.get(name)
    }


def membership_table(results: Mapping[str, Any]) -> Table:
    """Was this recording used for training?"""
    rows = results["membership"]
    return Table(
        "Membership: was this recording used for training?",
        [
            *("What is sent", "Who attacks", "Attack", "AUC"),
            *("Found at 1 % false alarms (%)", "at 10 % (%)", "Sent (%)", "Accuracy (%)"),
        ],
        [
            [
                *(row["title"], row["attacker"], row["attack"]),
                _interval(row["auc"], 1, 3),
                *(_interval(row[figure], 100, 0) for figure in ("hits_at_1", "hits_at_10")),
                *_costs(row),
            ]
            for row in rows
        ],
        note=(
            "AUC 0.5 is a guess, 1 is certainty; brackets hold 95 % of a bootstrap over rooms and, "
            "within them, over counts and days. A recording is compared with others of the same "
            f"room, count and day alone: {rows[0]['members']} used and {rows[0]['others']} unused "
            f"ones in the first row. Sent: share of the prototypes that rooms could have sent. "
            f"{_without_message(results)}{leak_caption(results)}"
        ),
        text_columns=3,
        breaks=_breaks(rows),
    )


def _reconstruction_table(results: Mapping[str, Any]) -> Table:
    """What did the windows of a class look like?"""
    rows = results["reconstruction"]
    return Table(
        "Reconstruction: what did the windows of a class look like on average?",
        [
            "What is sent",
            "What the attacker has",
            "Error",
            "Correlation",
            "Sent (%)",
            "Accuracy (%)",
        ],
        [
            [
                *(row["title"], _WAYS[row["way"]]),
                *(_interval(row[figure], 1, 2) for figure in ("error", "correlation")),
                *_costs(row),
            ]
            for row in rows
        ],
        note=(
            "Error: distance to the true mean window in shares of its length, windows normalised; "
            "1 is what the mean of all windows alone has, which a model file holds. Mean over "
            f"{rows[0]['classes']} prototypes in the first row; brackets hold 95 % of a bootstrap "
            f"over rooms. {leak_caption(results)}"
        ),
        text_columns=2,
        breaks=_breaks(rows),
    )


def _identity_table(results: Mapping[str, Any]) -> Table:
    """Whose set is this?"""
    rows = results["identity"]
    return Table(
        "Identity: whose set is this?",
        ["What is sent", "Asked", "Named rightly (%)", "By a guess (%)", "AUC", "Sent (%)"],
        [
            [
                *(row["title"], row["question"]),
                _interval(row["first"], 100, 0),
                _percent(row["chance"]),
                _interval(row["auc"], 1, 2),
                _costs(row)[0],
            ]
            for row in rows
        ],
        note=(
            "Over rounds: of each room the set of the round a third of the way in has a name, that "
            "of the last round has none. Over days: each day of a room is a client, the first days "
            "have names. By its classes: by which classes were sent alone. Weights: by the arrays "
            "that have one shape in all rooms. Brackets hold 95 % of a bootstrap over rooms. "
            f"{_one_round(results)}{leak_caption(results)}"
        ),
        text_columns=2,
        breaks=_breaks(rows),
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}"


def _interval(told: Mapping[str, float] | None, factor: float, digits: int) -> str:
    if told is None:
        return "–"
    value, low, high = (factor * told[name] for name in ("value", "low", "high"))
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _costs(row: Mapping[str, Any]) -> list[str]:
    """What is sent, and how well rooms count."""
    weights = row["method"] == "FedAvg"
    sent = "–" if weights else f"{100 * float(np.mean(row['sent'])):.0f}"
    return [sent, f"{100 * float(np.mean(row['accuracy'])):.1f}"]


def _breaks(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Where another case begins."""
    return [
        place for place in range(1, len(rows)) if rows[place]["case"] != rows[place - 1]["case"]
    ]
