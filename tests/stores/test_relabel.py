"""Labels that come later: who trains from then on, and that nothing seen before is tested."""

from pathlib import Path

import pytest

from fedapa.errors import DataError
from fedapa.federation.plan import Plan
from fedapa.federation.prepare import prepare_rooms
from fedapa.rooms.room import Room
from fedapa.stores.relabel import relabel, unlabelled_recordings
from fedapa.stores.store import Store
from tests.conftest import MakeStore

TAKES = {0: 5, 1: 5, None: 3}


def room_of(store: Path, split: str = "recording") -> Room:
    data = {"file": str(store), "window": 32, "view": "statistics", "split": split}
    (room,) = prepare_rooms(Plan(data=data, algorithm="local"))
    return room


def recordings_in(room: Room, part: str = "test") -> set[str]:
    assert room.origins is not None
    names = room.origins.recordings[getattr(room.split, part)]
    return {str(name) for name in names}


def test_a_recording_that_was_labelled_later_trains_and_never_tests(make_store: MakeStore) -> None:
    store = make_store({"cafe": TAKES})
    before = room_of(store)
    first, *others = unlabelled_recordings(store)
    done = relabel(store, room="cafe", names=[first.name], label=1)
    assert (done.changed, done.left) == ((first.name,), len(others))
    after = room_of(store)
    assert len(after.split.train) > len(before.split.train)
    assert len(after.split.unlabelled) < len(before.split.unlabelled)
    for part in ("test", "validation"):
        assert recordings_in(after, part) == recordings_in(before, part), (
            "the same windows as before"
        )
    assert after.windows.shape == before.windows.shape
    with Store(store) as opened:
        told = {one.name: (one.label, one.part) for one in opened.recordings("cafe")}
    assert told[first.name] == (1, "train")
    assert [told[one.name] for one in others] == [(None, "unlabelled")] * 2


def test_many_recordings_at_once_by_a_pattern(make_store: MakeStore) -> None:
    store = make_store({"cafe": TAKES})
    names = [one.name for one in unlabelled_recordings(store)]
    done = relabel(store, room="cafe", names=[f"{names[0][:2]}*"], label=0)
    assert set(done.changed) <= set(names) and done.changed
    assert done.left == len(names) - len(done.changed)


def test_a_label_is_taken_away_and_given_again(make_store: MakeStore) -> None:
    """What it was tested on before may have been learned from since: it stays in train."""
    store = make_store({"cafe": TAKES})
    with Store(store) as opened:
        name = next(one.name for one in opened.recordings("cafe") if one.label == 1)
    assert relabel(store, room="cafe", names=[name], label=None).left == 4
    relabel(store, room="cafe", names=[name], label=0, activity="sitting")
    with Store(store) as opened:
        (one,) = (each for each in opened.recordings("cafe") if each.name == name)
    assert (one.label, one.part, one.activity) == (0, "train", "sitting")


def test_what_cannot_be_labelled_is_told(make_store: MakeStore) -> None:
    store = make_store({"cafe": TAKES})
    content = store.read_bytes()
    with Store(store) as opened:
        labelled = next(one.name for one in opened.recordings("cafe") if one.label == 1)
    (first, *_) = unlabelled_recordings(store)

    def refuses(words: str, **change: object) -> None:
        asked = {"room": "cafe", "names": [first.name], "label": 1, **change}
        with pytest.raises(DataError, match=words):
            relabel(store, **asked)

    refuses("is labelled 1 already; take that away first with --none", names=[labelled])
    refuses("has no label that could be taken away", label=None)
    refuses("there is no room 'caffe'.*cafe", room="caffe")
    refuses("has no recording 'nobody'", names=["nobody"])
    refuses("counts and categories do not go into one store.*use --count", label="sit")
    refuses("stands beside a count", label=None, activity="sitting", names=[labelled])
    assert store.read_bytes() == content


def test_labels_that_came_later_alone_leave_nothing_to_test(make_store: MakeStore) -> None:
    store = make_store({"cafe": {None: 4}})
    names = [one.name for one in unlabelled_recordings(store)]
    relabel(store, room="cafe", names=names[:2], label=0)
    relabel(store, room="cafe", names=names[2:], label=1)
    with pytest.raises(DataError, match="no label but those that 'fedapa label' gave"):
        room_of(store)
