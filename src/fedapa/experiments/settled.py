"""One view for all rows and seeds of a setting, chosen before any run.

With ``data.view = "auto"`` every run would ask its rooms, and another seed, another number of train
recordings or a model of numbers might find another view best: then a table compares views, not
methods. So the rooms are asked once, with the first seed's split; test windows are not seen.
"""

from dataclasses import dataclass, replace

from fedapa.algorithms import find
from fedapa.experiments.experiment import Base, Case, Experiment, Nets
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import agree_by_cards, survey_rooms
from fedapa.processes import Show, unseen
from fedapa.windows.views import find_view
from fedapa.windows.views.statistics import Statistics

__all__ = ["Settled", "settle"]


@dataclass(frozen=True)
class Settled:
    """What is the same in all runs of a setting."""

    base: Base
    """With the view."""
    cases: tuple[Case, ...]
    """Those that these rooms can have."""
    view_why: str = ""
    """Why this view, in words; nothing where the plan names it."""
    notes: tuple[str, ...] = ()
    """What is left out, and why."""


def settle(experiment: Experiment, base: Base, nets: Nets, show: Show = unseen) -> Settled:
    """The view that the rooms agree on, in place of "auto", and the cases that there can be."""
    cases = tuple(experiment.cases(base.plan))
    plans = [experiment.plan(base, nets, case, 0) for case in cases]
    # Nets decide; where there are none, the models of numbers.
    first = next((plan for plan in plans if not _needs_numbers(plan)), plans[0])
    view: str = first.data.view
    why = ""
    if view == "auto":
        agreed = agree_by_cards(_with_all_recordings(first), show, workers=None)
        if agreed.view is None:  # of features there is one view
            return Settled(base, cases)
        view, why = agreed.view, f"chosen once, with seed 0: {agreed.view_why}"
        base = replace(base, changes=(*base.changes, {"data": {"view": view}}))
    flat = find_view(view).is_flat
    notes = tuple(
        f"{case.title}: left out, because its net takes vectors, not matrices."
        for case in cases
        if case.for_vectors and not flat
    )
    cases = tuple(case for case in cases if flat or not case.for_vectors)
    optional = [case for case in cases if case.optional]
    if not optional or flat or _have_statistics(first):
        return Settled(base, cases, why, notes)
    titles = " and ".join(dict.fromkeys(find(str(case.algorithm)).title for case in optional))
    note = (
        f"{titles}: left out, because they count from statistics, which not all windows of these "
        "rooms can have (dead links, or too few packets)."
    )
    return Settled(base, tuple(case for case in cases if not case.optional), why, (*notes, note))


def _needs_numbers(plan: Plan) -> bool:
    return find(plan.algorithm["name"]).needs_features


def _with_all_recordings(plan: Plan) -> Plan:
    document = plan.document()
    for name in ("train_recordings", "train_windows", "train_classes", "unlabelled"):
        document["data"].pop(name, None)
    return Plan.of(document)


def _have_statistics(plan: Plan) -> bool:
    """Whether the windows of all rooms can be statistics of one shape."""
    if plan.data.file is None or plan.data.partition != "rooms":
        return True  # simulated rooms can; dealt ones are checked when they are cut
    surveyed = survey_rooms(Plan.of(plan.document(), {"data": {"view": "auto"}}))
    shapes = {origins.shapes.get(Statistics.name) for origins in surveyed if origins.shapes}
    return None not in shapes and len(shapes) <= 1
