"""The verdict: what the figures of a setting say, in one sentence."""

from fedapa.evaluation.results import Row, Setting

__all__ = ["in_short", "verdict"]


def in_short(setting: Setting, horizon: int) -> str | None:
    """Who counts best, how well, and whether that beats the controls and guessing.

    None where no method has a figure.
    """
    scored = [row for row in setting.rows if row.metrics(horizon, "accuracy") is not None]
    methods = [row for row in scored if row.group not in ("blind", "control")]
    if not methods:
        return None
    best = max(methods, key=lambda row: _mean(row, horizon, "accuracy"))
    told = f"{best.title} is right in {_percent(best, horizon, 'accuracy')} of the test windows"
    if best.metrics(horizon, "within_one") is not None:
        told += f" and within one person in {_percent(best, horizon, 'within_one')}"
    others = [row for row in scored if row.group == "control"]
    others += [row for row in methods if row is not best]
    blind = [row for row in scored if row.group == "blind"]
    compared = [_against(setting, best, row, horizon) for row in others]
    if blind:
        guess = max(blind, key=lambda row: _mean(row, horizon, "accuracy"))
        compared.append(f"guessing reaches {_percent(guess, horizon, 'accuracy')}")
    seeds = len(setting.seeds)
    chance = "; one seed, so a few points may be chance" if seeds < 2 and others else ""
    return f"{told}: {', '.join(compared)}{chance}." if compared else f"{told}."


def _mean(row: Row, horizon: int, metric: str) -> float:
    figures = row.metrics(horizon, metric) or [0.0]
    return sum(figures) / len(figures)


def _percent(row: Row, horizon: int, metric: str) -> str:
    return f"{100 * _mean(row, horizon, metric):.1f} %"


def _against(setting: Setting, best: Row, other: Row, horizon: int) -> str:
    """How far another row lies from the best, and whether that is clear."""
    lead = _mean(best, horizon, "accuracy") - _mean(other, horizon, "accuracy")
    difference = setting.against(best, other, horizon)
    clear = "" if len(setting.seeds) < 2 or difference is None else ", not clearly"
    if difference is not None and difference.is_clear and len(setting.seeds) > 1:
        clear = ", clearly"
    way = "above" if lead >= 0 else "below"
    return f"{abs(100 * lead):.1f} points {way} {other.title}{clear}"


def verdict(setting: Setting, horizon: int) -> str | None:
    """Whom the reference beats clearly, who beats it, and what nobody can tell.

    None where there is no reference, or one seed only.
    """
    reference = setting.row(setting.reference)
    if reference is None or len(reference.outcomes) < 2:
        return None
    better: list[str] = []
    worse: list[str] = []
    unsure: list[str] = []
    for row in setting.ordered:
        difference = None if row is reference else setting.against(reference, row, horizon)
        if difference is not None:
            clear = better if difference.mean > 0 else worse
            (clear if difference.is_clear else unsure).append(row.title)
    if not (better or worse or unsure):
        return None
    return (
        f"After {setting.horizon_label(horizon)} rounds {reference.title}'s accuracy is clearly "
        f"above: {'; '.join(better) or 'nobody'}. Clearly below: {'; '.join(worse) or 'nobody'}. "
        f"Not clearly apart from: {'; '.join(unsure) or 'nobody'}."
    )
