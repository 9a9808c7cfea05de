"""The verdict: what the differences of a setting say, in one sentence."""

from fedapa.evaluation.results import Setting

__all__ = ["verdict"]


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
