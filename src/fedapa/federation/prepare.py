"""The rooms of a plan: windows cut, classes found, split, normalised, nets assigned."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedapa.errors import DataError, PlanError, nearest
from fedapa.federation.plan import Plan
from fedapa.models.build import assign_by_size
from fedapa.models.cost import layers
from fedapa.processes import Progress, Show, available_cores, unseen
from fedapa.randomness import Key
from fedapa.rooms.room import Room
from fedapa.rooms.skew import deal
from fedapa.stores.materialise import RoomWindows, materialise
from fedapa.stores.simulated import simulated_store
from fedapa.stores.store import Store
from fedapa.windows.labels import Label, class_indices, sorted_labels
from fedapa.windows.split import Split, split_windows

__all__ = ["GIVEN_ROOMS", "check_batches", "describe", "prepare_rooms"]

GIVEN_ROOMS = "rooms given in Python"
"""What stands for a file where there is none."""


def check_batches(rooms: Iterable[Room], batch_size: int) -> None:
    """Refuse batches of one window where BatchNorm would have a single value to normalise."""
    for room in rooms:
        if batch_size > 1 and len(room.split.train) > 1:
            continue
        for layer in layers(room.build(), room.windows.shape[1:]):
            if layer.kind == "BatchNorm2d" and math.prod(layer.output[1:]) == 1:
                raise PlanError(
                    f"room '{room.name}': batches of one window of "
                    f"{' × '.join(map(str, room.windows.shape[1:]))} leave {layer.name} a single "
                    "value to normalise; use a larger batch_size or window, or a smaller net"
                )


def prepare_rooms(
    plan: Plan,
    show: Show = unseen,
    *,
    workers: int | None = 0,
) -> list[Room]:
    """The plan's rooms: windows cut, classes found, split, normalised, nets assigned."""
    store = _store_of(plan, show, workers)
    with Store(store) as opened:
        recommended = opened.window
        chosen = plan.data.rooms_of(opened)
    found = materialise(store, plan.data.recipe(recommended), rooms=chosen, show=show)
    found = _partitioned(plan, found)
    classes = _classes(plan, found)
    splits = {each.room: _split(plan, each) for each in found}
    nets = _nets(plan, found, splits)
    rooms = []
    for number, each in enumerate(found, start=1):
        windows = each.open()
        rooms.append(
            Room(
                name=each.room,
                windows=windows,
                labels=class_indices(each.room, each.labels, classes),
                classes=classes,
                split=splits[each.room],
                recipe=replace(each.recipe, normaliser=each.normaliser(splits[each.room].train)),
                architecture=nets[each.room],
                width=plan.model.width,
                normalise_embedding=plan.model.normalise_embedding,
                initialisation=plan.model.initialisation,
                key=Key(plan.seed),
                device=plan.device,
                synthetic=each.synthetic,
            )
        )
        show(Progress("normalising", number, len(found), "rooms"))
    return rooms


def _store_of(plan: Plan, show: Show, workers: int | None) -> Path:
    if plan.data.file is not None:
        return Path(plan.data.file)
    return simulated_store(
        plan.data.simulated,
        plan.data.simulated_seed,
        workers=available_cores() if workers is None else max(1, workers),
        show=show,
    )


def _partitioned(plan: Plan, found: tuple[RoomWindows, ...]) -> tuple[RoomWindows, ...]:
    if plan.data.partition == "rooms":
        return found
    return deal(
        found,
        kind=plan.data.partition,
        rooms=plan.data.partition_rooms,
        concentration=plan.data.partition_concentration,
        classes=plan.data.partition_classes,
        whole_recordings=plan.data.split != "random",
        key=Key(plan.seed) / "partition",
    )


def _source(plan: Plan) -> str:
    """Where the windows come from, in words."""
    data = plan.data
    source = data.file or f"simulated rooms '{data.simulated}'"
    dealt = {
        "rooms": "",
        "dirichlet": f", dealt to {data.partition_rooms} rooms by Dirichlet shares, "
        f"α = {data.partition_concentration:g}",
        "classes": f", dealt to {data.partition_rooms} rooms with {data.partition_classes} "
        "classes each",
    }
    return source + dealt[data.partition]


def _classes(plan: Plan, found: Iterable[RoomWindows]) -> tuple[Label, ...]:
    for each in found:
        if len(set(each.labels)) < 2:
            raise DataError(
                f"room '{each.room}' has a single class ({each.labels[0]!r}): there is nothing to "
                "tell apart; record another count there or leave the room out"
            )
    labels = {label for each in found for label in each.labels}
    kinds = {type(label) for label in labels}
    if len(kinds) > 1:
        odd = sorted_labels(labels)
        raise DataError(
            f"labels mix counts and categories ({odd[0]!r} … {odd[-1]!r}); use one kind"
        )
    return plan.classes if plan.classes is not None else sorted_labels(labels)


def _split(plan: Plan, each: RoomWindows) -> Split:
    return split_windows(
        each.room,
        each.labels,
        each.recordings,
        each.starts,
        spans=each.spans,
        kind=plan.data.split,
        key=Key(plan.seed) / "split" / each.room,
        test=plan.data.test,
        validation=plan.data.validation,
    )


def _nets(
    plan: Plan, found: Sequence[RoomWindows], splits: Mapping[str, Split]
) -> Mapping[str, str]:
    chosen = plan.model.architecture
    if isinstance(chosen, dict):
        names = {each.room for each in found}
        for room in sorted({*chosen, *names}):
            if room not in names:
                raise PlanError(
                    f"model.architecture: there is no room '{room}' in the data; "
                    f"{nearest(room, sorted(names))}"
                )
            if room not in chosen:
                raise PlanError(f"model.architecture: room '{room}' has no net; name one for it")
        return chosen
    if chosen == "by-size":
        return assign_by_size({room: len(split.train) for room, split in splits.items()})
    return {each.room: chosen for each in found}


def describe(prepared: Sequence[Room], plan: Plan) -> dict[str, Any]:
    """What the data of a run is, without any of it."""
    return {
        "source": _source(plan),
        "synthetic": any(room.synthetic for room in prepared),
        "split": " and ".join(sorted({room.split.kind for room in prepared})),
        "classes": list(prepared[0].classes),
        "window_shape": list(prepared[0].windows.shape[1:]),
        "rooms": {
            room.name: {
                "architecture": room.architecture,
                "synthetic": room.synthetic,
                "train": len(room.split.train),
                "validation": len(room.split.validation),
                "test": len(room.split.test),
                "fingerprint": _fingerprint(room),
            }
            for room in prepared
        },
    }


def _fingerprint(room: Room) -> str:
    """A short name for a room's data; a changed label, split or normaliser changes it."""
    parts = (room.labels, room.split.train, room.split.test, room.normaliser.mean)
    text = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
    return hashlib.blake2b(text, digest_size=8).hexdigest()
