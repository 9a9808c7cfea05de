"""The verdict: what the figures of a setting say, in one sentence."""

from dataclasses import replace

from fedapa.evaluation.results import Results, Row, Setting

__all__ = ["answers", "in_short"]

_MOST = 4
"""Methods that are all named; of more only the next best and the reference."""


def answers(results: Results) -> list[str]:
    """The sentence of every setting that has one, after all rounds."""
    told = {
        setting.title: in_short(setting, setting.rounds, results.parameter)
        for setting in results.settings
    }
    several = len(told) > 1
    return [f"{title}: {said}" if several else said for title, said in told.items() if said]


def in_short(setting: Setting, horizon: int, parameter: str = "") -> str | None:
    """Who counts best, how well, and whether that beats the controls and guessing.

    Lines of a sweep of ``parameter`` are compared at its largest value. None where there is nothing
    to compare.
    """
    setting = replace(setting, rows=setting.deployed)
    if setting.final:
        return _of_days(setting, horizon, parameter)
    if setting.lines:
        return _of_lines(setting, horizon, parameter)
    scored = [row for row in setting.rows if row.metrics(horizon, "accuracy") is not None]
    methods = [row for row in scored if row.group not in ("blind", "control")]
    if not methods:
        return None
    methods.sort(key=lambda row: -_mean(row, horizon, "accuracy"))
    best, *rest = methods
    told = f"{best.title} is right in {_percent(best, horizon, 'accuracy')} of the test windows"
    whole = best.of_every_room(horizon, "within_one")  # a sentence cannot say of which rooms
    if whole and best.metrics(horizon, "within_one") is not None:
        told += f" and within one person in {_percent(best, horizon, 'within_one')}"
    others = [row for row in scored if row.group == "control"]
    others += rest
    if len(methods) > _MOST:
        told = f"Of {len(methods)} methods {told}"
        others = [row for row in others if row not in rest[1:] or row.name == setting.reference]
    blind = [row for row in scored if row.group == "blind"]
    compared = [_against(setting, best, row, horizon) for row in others]
    if blind:
        guess = max(blind, key=lambda row: _mean(row, horizon, "accuracy"))
        compared.append(f"guessing reaches {_percent(guess, horizon, 'accuracy')}")
    seeds = len(setting.seeds)
    chance = "; one seed, so a few points may be chance" if seeds < 2 and others else ""
    return f"{told}: {', '.join(compared)}{chance}." if compared else f"{told}."


def _of_days(setting: Setting, horizon: int, parameter: str) -> str | None:
    """The reference against the first other line and the last, where nothing was chosen."""
    summed = setting.summed
    best = summed.row(setting.reference)
    if best is None:
        return None
    days = ", ".join(f"{value:g}" for value in setting.final)
    told = f"{best.title}: right in {_percent(best, horizon, 'accuracy')} of the windows"
    others = [row for row in summed.rows if row is not best]
    compared = [_against(summed, best, row, horizon) for row in (others[:1] + others[1:][-1:])]
    return f"{told} of {parameter} {days}: {', '.join(compared)}."


def _of_lines(setting: Setting, horizon: int, parameter: str) -> str | None:
    """The lines of a sweep at the largest value that all of them have; none where there is one."""
    lines = list(setting.lines.values())
    shared = set.intersection(*({row.value for row in line} for line in lines))
    numbers = [value for value in shared if isinstance(value, int | float)]
    if len(lines) < 2 or not numbers:
        return None
    largest = max(numbers)
    rows = [
        replace(row, title=row.group, group="paper", value=None)
        for line in lines
        for row in line
        if row.value == largest
    ]
    rows += [row for row in setting.rows if row.group == "blind"]
    told = in_short(replace(setting, rows=rows), horizon)
    return None if told is None else f"At {largest:g} {parameter}: {told}"


def _mean(row: Row, horizon: int, metric: str) -> float:
    figures = row.metrics(horizon, metric) or [0.0]
    return sum(figures) / len(figures)


def _percent(row: Row, horizon: int, metric: str) -> str:
    return f"{100 * _mean(row, horizon, metric):.1f} %"


def _against(setting: Setting, best: Row, other: Row, horizon: int) -> str:
    """How far another row lies from the best, and whether that is clear."""
    lead = _mean(best, horizon, "accuracy") - _mean(other, horizon, "accuracy")
    if f"{abs(100 * lead):.1f}" == "0.0":
        return f"as often as {other.title}"
    difference = setting.against(best, other, horizon)
    clear = "" if len(setting.seeds) < 2 or difference is None else ", not clearly"
    if difference is not None and difference.is_clear and len(setting.seeds) > 1:
        clear = ", clearly"
    way = "above" if lead >= 0 else "below"
    return f"{abs(100 * lead):.1f} points {way} {other.title}{clear}"
