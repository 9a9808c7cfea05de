"""Structures of a damaged HDF5 file that lead back to themselves are refused, and sound ones read.

What HDF5 would follow for ever is read in a process of its own with little memory and time.
"""

import random
import re
import struct
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from fedapa.stores.hdf5 import opened
from fedapa.stores.store import Store, write_store
from tests.conftest import MakeStore

READS = """
import resource, sys
from fedapa.errors import DataError
from fedapa.stores.store import Store
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
for path in sys.argv[1:]:
    try:
        with Store(path) as store:
            for room in store.rooms:
                store.about(room)
                for one in store.recordings(room):
                    store.read(one, 0, 1)
        print("read")
    except DataError as error:
        print(error)
"""
NOWHERE = 2**64 - 1
GROUP_KEY, CHUNK_KEY = 8, 8 + 8 * (3 + 1)
"""A chunk of packets, subcarriers and links has an offset in each, and one in its bytes."""


def read_apart(*paths: Path) -> list[str]:
    """What comes of reading stores, each in a line."""
    command = [sys.executable, "-c", READS, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def refused(path: Path, *contents: bytes) -> list[str]:
    """What is said of a store with each of these contents."""
    paths = [path.with_name(f"damaged-{number}.h5") for number in range(len(contents))]
    for damaged, content in zip(paths, contents, strict=True):
        damaged.write_bytes(content)
    return read_apart(*paths)


def put(content: bytes, at: int, number: int) -> bytes:
    """The file with another address at a place."""
    return content[:at] + struct.pack("<Q", number) + content[at + 8 :]


def starts(content: bytes, signature: bytes) -> list[int]:
    return [found.start() for found in re.finditer(re.escape(signature), content)]


def node(
    content: bytes,
    at: int,
    *,
    level: int | None = None,
    children: tuple[int, ...] = (),
    key: int = GROUP_KEY,
    left: int = NOWHERE,
    right: int = NOWHERE,
) -> bytes:
    """The file with another node at ``at``."""
    changed = bytearray(content)
    changed[at + 5] = changed[at + 5] if level is None else level
    struct.pack_into("<QQ", changed, at + 8, left, right)
    if children:
        struct.pack_into("<H", changed, at + 6, len(children))
    for number, child in enumerate(children):
        struct.pack_into("<Q", changed, at + 24 + key + number * (8 + key), child)
    return bytes(changed)


def test_trees_that_lead_back_to_themselves_are_refused(make_store: MakeStore) -> None:
    """Read on, the first two end the process and the next three never come back."""
    path = make_store({"cafe": {0: 1, 1: 1}, "hall": {0: 1, 1: 1}})
    sound = path.read_bytes()
    groups, chunks = starts(sound, b"TREE\0"), starts(sound, b"TREE\1")
    _, cafe, other, *_ = groups
    snod = struct.unpack_from("<Q", sound, other + 24 + GROUP_KEY)[0]
    damaged = [
        node(sound, cafe, level=1, children=(cafe,)),
        node(sound, chunks[0], level=1, children=(chunks[0],), key=CHUNK_KEY),
        node(sound, cafe, right=cafe, left=cafe),
        node(node(sound, cafe, right=other, left=other), other, right=cafe, left=cafe),
        node(sound, cafe, right=chunks[0]),
        node(sound, cafe, level=1, children=(other, other)),
        node(sound, cafe, level=2, children=(other,)),
        node(sound, cafe, children=(snod, snod)),
    ]
    told = refused(path, *damaged)
    assert len(told) == len(damaged)
    where = [cafe, chunks[0], *[cafe] * 6]
    for number, (sentence, at) in enumerate(zip(told, where, strict=True)):
        assert f"damaged-{number}.h5: the tree of a group or of chunks at byte {at} " in sentence
        assert sentence.endswith("or to what is no part of it; damaged: make it again")


def test_a_node_with_two_parents_is_refused(make_store: MakeStore) -> None:
    """With 32 children on each of seven levels, all of them one node, it is read 2^35 times."""
    path = make_store({"cafe": {0: 1, 1: 1}, "hall": {0: 1, 1: 1}})
    sound = path.read_bytes()
    root, cafe, first, second, shared = starts(sound, b"TREE\0")[:5]
    damaged = node(sound, cafe, level=2, children=(first, second))
    for parent, left, right in ((first, NOWHERE, second), (second, first, NOWHERE)):
        damaged = node(damaged, parent, level=1, children=(shared,), left=left, right=right)
    (told,) = refused(path, damaged)
    assert re.search(rf"at byte ({first}|{second}) leads back to itself", told), told
    assert root < cafe


def test_names_with_free_places_without_an_end_are_refused(make_store: MakeStore) -> None:
    """HDF5 keeps a note of each of them: memory grows until there is none."""
    path = make_store({"cafe": {0: 1, 1: 1}})
    sound = path.read_bytes()
    damaged = []
    for heap in starts(sound, b"HEAP\0")[:2]:
        size, _, names = struct.unpack_from("<QQQ", sound, heap + 8)
        last = (size - 16) // 8 * 8
        for free in (((last, last),), ((last - 16, last), (last, last - 16)), ((last, size),)):
            changed = bytearray(sound)
            struct.pack_into("<Q", changed, heap + 16, free[0][0])
            for place, following in free:
                struct.pack_into("<QQ", changed, names + place, following, 16)
            damaged.append(bytes(changed))
    told = refused(path, *damaged)
    assert len(told) == 6
    for sentence in told:
        assert re.search(r"the free places in the names of a group at byte \d+ have no", sentence)


def test_groups_that_share_a_tree_are_refused(make_store: MakeStore) -> None:
    """Each of thousands of groups would be walked through by all of a large one."""
    path = make_store({"cafe": {0: 1, 1: 1}, "hall": {0: 1, 1: 1}})
    with h5py.File(path, "r+") as file:
        file["cafe"]["again"] = file["cafe/0-0"]  # one group of two names
    assert read_apart(path) == ["read"]
    sound = path.read_bytes()
    cafe, hall = (
        sound.index(b"\x11\0\x10\0", header) + 8
        for header in (header_of(sound, "cafe", path), header_of(sound, "hall", path))
    )
    (tree,) = struct.unpack_from("<Q", sound, cafe)
    (told,) = refused(path, put(sound, hall, tree))
    assert f"leads to a tree of another kind, or of another, at byte {tree}; damaged" in told


def header_of(content: bytes, name: str, path: Path) -> int:
    with h5py.File(path) as file:
        header = h5py.h5o.get_info(file[name].id).addr
    assert content[header : header + 2] == b"\1\0"
    return int(header)


def test_trees_that_hdf5_wrote_are_read(tmp_path: Path) -> None:
    """Of several levels, in any order, with much taken away again, by versions of the format."""
    rng, path = random.Random(0), tmp_path / "file.h5"
    for versions in (("earliest", "v108"), ("v108", "v108"), "latest"):
        with h5py.File(path, "w", libver=versions) as file:
            group = file.create_group("room")
            for number in range(800):
                group.create_group(f"{number * 7919 % 800:04d} {'x' * (number % 30)}")
            for name in rng.sample(sorted(group), 500):
                del group[name]
            for rank in (1, 2, 3, 4):
                shape = (300,) + (2,) * (rank - 1)
                made = file.create_dataset(f"{rank}", shape, "f4", chunks=(1, *shape[1:]))
                for row in rng.sample(range(300), 300):
                    made[row] = row
        with opened(path) as file:
            assert len(list(file["room"])) == 300
            for rank in (1, 2, 3, 4):
                made = file[f"{rank}"]
                assert made.id.get_num_chunks() == 300
                assert made.id.get_storage_size() == made.size * 4
                assert (made[:].reshape(300, -1)[:, 0] == np.arange(300)).all()


def test_values_that_look_like_a_tree_or_names_are_values(make_store: MakeStore) -> None:
    path = make_store({"cafe": {0: 1, 1: 1}}, packets=64)
    start = struct.unpack("<d", b"TREE\0\1\1\0")[0], struct.unpack("<d", b"HEAP\0\0\0\0")[0]
    with h5py.File(path, "r+") as file:
        for name, first in zip(("0-0", "1-0"), start, strict=True):
            file[f"cafe/{name}/timestamps"][0] = first
    with Store(path) as store:
        for one in store.recordings("cafe"):
            assert store.timestamps(one)[0] in start


def test_where_the_system_reads_by_position_alone_the_same_is_read(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows has no preadv."""
    path = make_store({"cafe": {0: 2, 1: 1}})

    def values() -> list[np.ndarray]:
        with Store(path) as store:
            return [store.read(one, 0, one.shape[0]) for one in store.recordings("cafe")]

    usual = values()
    monkeypatch.delattr("os.preadv")
    for ours, theirs in zip(values(), usual, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_small_values_that_look_like_headers_are_values(tmp_path: Path) -> None:
    """Of version 1 with 9 messages and 4 GB long; and with 3 messages and a link to it, of which
    the first is empty and ends where the message of another header begins that leads to its chunks,
    and the third is not there."""
    path = tmp_path / "rooms.h5"
    with h5py.File(path, "w") as file:
        for number in range(300):
            values = np.zeros(64, np.uint16)
            values[:6] = [1, 9, 0, 0, 65535, 65535]
            file[f"{number}"] = values
        file["like"] = np.zeros(64, np.uint16)
        file["zeros"] = np.zeros(30_000, np.uint8)
        file.create_dataset("chunks", data=np.ones(100), chunks=(10,))
    with h5py.File(path) as file:
        like = file["like"].id.get_offset()
        header = h5py.h5o.get_info(file["chunks"].id).addr
    message = path.read_bytes().index(b"\x08\0\x18\0", header)
    with h5py.File(path, "r+") as file:
        apart = message - (like + 16 + 8)
        file["like"][:10] = [1, 3, 1, 0, apart + 8 + 8 + 24, 0, 0, 0, 0, apart]
    for names in (["chunks", "like"], ["like", "chunks"]):
        with opened(path) as file:
            assert [float(file[name][:].sum()) for name in names] == [
                {"chunks": 100.0, "like": float(2 * apart + 8 + 8 + 24 + 5)}[name] for name in names
            ]
            assert all(file[f"{number}"][:2].tolist() == [1, 9] for number in range(300))


def test_stores_of_small_whole_numbers_are_read(tmp_path: Path) -> None:
    """Hundreds of takes that begin with all kinds of numbers, many of them with 1 and 0."""
    draw = np.random.default_rng(0)
    for number, kind in enumerate((np.int16, np.uint8, np.uint16)):
        path = tmp_path / f"{number}.h5"
        takes = [draw.integers(0, 4, (40, 2, 2)).astype(kind) for _ in range(150)]
        with write_store(path) as store:
            store.add_room("cafe", synthetic=False, about={})
            for place, take in enumerate(takes):
                name, stamps = f"{place:03d}", np.arange(40) / 100
                store.add_recording("cafe", name, label=0, amplitude=take, timestamps=stamps)
        with Store(path) as store:
            read = [store.read(one, 0, 40) for one in store.recordings("cafe")]
        np.testing.assert_array_equal(read, takes)


def test_a_group_that_leads_to_a_tree_of_chunks_is_refused(make_store: MakeStore) -> None:
    """And values that lead to a tree of names. HDF5 looks at the type when it reads a tree, and not
    when it has it in memory, where it takes the one's numbers for the other's pointers."""
    path = make_store({"cafe": {0: 1, 1: 1}, "hall": {0: 1, 1: 1}})
    with h5py.File(path, "r+", libver="latest") as file:
        file.copy("cafe", "new", name="new")
    sound = path.read_bytes()
    assert read_apart(path) == ["read"]
    groups, chunks = starts(sound, b"TREE\0"), starts(sound, b"TREE\1")
    damaged = []
    for wrong, right in ((groups[0], chunks), (chunks[0], groups[1:])):
        for tree in right:
            for told in starts(sound, struct.pack("<Q", tree)):
                damaged.append(put(sound, told, wrong))
    assert len(damaged) >= len(groups) + len(chunks) - 1
    told = refused(path, *damaged)
    assert len(told) == len(damaged)
    found = [
        sentence
        for sentence in told
        if "leads to a tree of another kind, or of another, at byte" in sentence
    ]
    assert len(found) == len(groups) - 1 + len(chunks)
    # The parents of groups also tell of their trees. HDF5 reads what groups tell themselves.
    assert {*told} - {*found} == {"read"}
