"""Mutated stores and manifests: what is read, or a DataError; no crash of HDF5, no huge arrays.

Some of the stores are damaged bytes, some whole HDF5 files with an attribute, a dataset or a group
that a store does not have; and in some an address leads elsewhere, which random bytes do not find.
"""

import bisect
import csv
import io
import random
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fedapa.errors import DataError, FedapaError
from fedapa.stores.imported.sources import sources_by_manifest
from fedapa.stores.store import Recording, Store, write_store
from tests.fuzz import Make, Subject, mutate, odd_value

_MOST_ROWS = 1000


def read_store(path: Path) -> int:
    """Everything that a store tells; the number of its rows."""
    rows = 0
    with Store(path) as store:
        assert isinstance(store.synthetic, bool)
        assert store.window is None or store.window > 0
        assert isinstance(store.notes, dict)
        for room in store.rooms:
            store.about(room)
            store.recipe(room)
            for recording in store.recordings(room):
                rows += _read_recording(store, recording)
    return rows


def _read_recording(store: Store, recording: Recording) -> int:
    rows = min(_MOST_ROWS, recording.shape[0])
    values = store.read(recording, 0, rows)
    assert values.dtype == np.float32
    assert values.shape == (rows, *recording.shape[1:])
    assert np.isfinite([recording.rate, recording.mean_rate]).all()
    if not recording.is_features:
        assert store.timestamps(recording).shape == recording.shape[:1]
    return rows


def _strange(rng: random.Random) -> Any:
    """A value for an attribute that HDF5 can hold."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(
            (np.zeros(3), np.zeros((2, 2), np.int8), np.array([], np.float32), np.bytes_(b"\xff"))
        )
    if kind == 1:
        return h5py.Empty("f4")
    value = odd_value(rng)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(rng.choice((value % 2**60, 1)))
    if isinstance(value, dict | list) or value is None:
        return str(value)
    if isinstance(value, str):
        return value.replace("\0", "?").encode(errors="replace").decode()
    return value


_SIGNATURES = re.compile(b"TREE|HEAP|SNOD|GCOL\x01|OHDR|OCHK")


def misled(data: bytes, rng: random.Random) -> bytes:
    """A file in which one address has become that of its own structure, or of another one."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        signed = {found.start(): found.group()[:4] for found in _SIGNATURES.finditer(data)}
        starts = sorted({*signed, *_object_headers(data, signed)})
        own = rng.choice(starts)
        after = bisect.bisect_right(starts, own)
        end = starts[after] if after < len(starts) else len(data)
        at = own + rng.choice(_addresses(data, own, min(end, own + 4096), starts))
        target = rng.choice((own, own, rng.choice(starts), rng.choice(list(signed))))
        if at + 8 <= len(out):
            struct.pack_into("<Q", out, at, target)
        if signed.get(own) == b"TREE" and rng.random() < 0.5:
            out[own + 5] = rng.choice((0, 1, 1, 2, 255))  # its level
        if signed.get(own) == b"HEAP" and rng.random() < 0.5:
            _free(out, own, rng)
    return bytes(out)


def _object_headers(data: bytes, signed: dict[int, bytes]) -> list[int]:
    """Where symbol nodes lead to: headers of version 1 begin with no word."""
    found = []
    for at, signature in signed.items():
        if signature == b"SNOD":
            (entries,) = struct.unpack_from("<H", data, at + 6)
            for number in range(entries):
                found.append(struct.unpack_from("<Q", data, at + 8 + 40 * number + 8)[0])
    return found


def _addresses(data: bytes, start: int, end: int, starts: list[int]) -> list[int]:
    """Where in a structure addresses are: those of structures, and of none."""
    known = {*starts, 2**64 - 1}
    within = range(8, end - start - 7, 4)
    there = [at for at in within if struct.unpack_from("<Q", data, start + at)[0] in known]
    # Children of nodes: keys of groups, of chunks with one axis and with three.
    slots = [24 + key + number * (8 + key) for key in (8, 24, 40) for number in range(2)]
    return [*there, *slots, 8, 16]


def _free(out: bytearray, heap: int, rng: random.Random) -> None:
    """Give a heap of names a free place that leads to itself, to another or out of it."""
    size, _, names = struct.unpack_from("<QQQ", out, heap + 8)
    if size >= 32 and names + size <= len(out):
        place, other = (rng.randrange(0, size - 15, 8) for _ in range(2))
        struct.pack_into("<Q", out, heap + 16, place)
        struct.pack_into("<QQ", out, names + place, rng.choice((place, other, 1, size)), 16)
        if rng.random() < 0.5:
            struct.pack_into("<QQ", out, names + other, place, 16)


class Stores(Subject):
    """Stores of packets, of features, with and without labels."""

    kind = "stores"
    # HDF5 2.0 takes the length of a text, 32 bits that may be damaged, before it finds that the
    # text is shorter; then it refuses, and the memory is free again. To take it needs 2 to 11 s.
    peak = (4 << 30) + Subject.peak
    seconds = Subject.seconds + 10

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "mutated.h5"
        packets, features = folder / "packets.h5", folder / "features.h5"
        chunked = folder / "chunked.h5"
        with write_store(packets) as store:
            for room, labels in {"cafe": (0, 2), "hall": (None,)}.items():
                store.add_room(room, synthetic=False, about={"device": "test"})
                for label in labels:
                    store.add_recording(
                        room,
                        f"{label}",
                        label=label,
                        amplitude=np.arange(36, dtype=np.float32).reshape(12, 3, 1),
                        timestamps=np.arange(12) / 100,
                        day="day 1",
                        rate=100.0,
                    )
        with write_store(features) as store:
            store.note({"window": 4, "about": "made for a test"})
            store.add_room("lab", synthetic=True, about={"bandwidth": 20})
            store.add_features("lab", "a", label="walk", features=np.ones((5, 4), np.float32))
            store.add_recording(
                "lab",
                "b",
                label="sit",
                amplitude=np.arange(24, dtype=np.int16).reshape(6, 2, 2),
                timestamps=np.arange(6) / 10,
                scale=0.5,
                day="monday",
            )
        shutil.copyfile(packets, chunked)
        with h5py.File(chunked, "r+") as file:  # a tree of two levels; and a group in a new form
            for name, shape in (("amplitude", (70, 3, 1)), ("timestamps", (70,))):
                del file["cafe/0"][name]
                file["cafe/0"].create_dataset(
                    name, data=np.ones(shape), chunks=(1, *shape[1:]), compression="gzip"
                )
        with h5py.File(chunked, "r+", libver="latest") as file:
            file.copy("cafe", "new", name="new")
        self.seeds = [path.read_bytes() for path in (packets, features, chunked)]

    def mutated(self, rng: random.Random) -> bytes:
        data = rng.choice(self.seeds)
        how = rng.random()
        if how < 0.4:
            return mutate(data, rng, self.seeds)
        return misled(data, rng) if how < 0.6 else self._changed(data, rng)

    def _changed(self, data: bytes, rng: random.Random) -> bytes:
        memory = io.BytesIO(data)
        with h5py.File(memory, "r+") as file:
            places: list[Any] = [file]
            file.visititems(lambda _, entry: places.append(entry))
            for _ in range(rng.choice((1, 1, 2))):
                self._change(file, rng.choice(places), rng)
        return memory.getvalue()

    def _change(self, file: h5py.File, place: Any, rng: random.Random) -> None:
        if not place or place.name is None:  # it was removed by the change before
            return
        names = sorted(place.attrs)
        kind = rng.randrange(5)
        if kind == 0 and names:
            del place.attrs[rng.choice(names)]
        elif kind in (1, 2):
            known = ["format", "version", "label", "day", "rate", "part", "scale", "recipe"]
            place.attrs[rng.choice(names + known)] = _strange(rng)
        elif isinstance(place, h5py.Dataset):
            parent, name = place.parent, place.name
            del parent[name]
            if rng.random() < 0.7:
                shape = rng.choice(((), (0,), (3,), (2, 2), (0, 3, 1), (4, 0, 1), (2, 3, 1, 1)))
                kind_of = rng.choice(("f4", "f8", "i2", "c8", "S4", "?", "f2", "u8"))
                chunks = True if shape and 0 not in shape and rng.random() < 0.5 else None
                fill = np.zeros(shape, kind_of)
                parent.create_dataset(name, data=fill, chunks=chunks)
        elif rng.random() < 0.5:
            name = rng.choice(("amplitude", "timestamps", "features", "new", "é", "a b"))
            if name not in place:
                place.create_dataset(name, data=np.ones((4, 3, 1), np.float32))
        else:
            target = rng.choice(("/nowhere", "/", "/cafe", str(self.folder / "packets.h5")))
            link = h5py.SoftLink(target) if rng.random() < 0.5 else h5py.ExternalLink(target, "/")
            name = rng.choice(("link", "linked"))
            if name not in place.keys():  # noqa: SIM118 (a link that leads nowhere is there, too)
                place[name] = link

    def attempt(self, data: bytes, rng: random.Random) -> str:
        self._path.write_bytes(data)
        try:
            read_store(self._path)
        except DataError as error:
            assert str(self._path) in str(error), error
            return "refused"
        except FedapaError:  # a recipe that is none
            return "refused"
        return "read"


class Manifests(Subject):
    """Tables of captures, their rooms and labels."""

    kind = "manifests"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "manifest.csv"
        for name in ("a.pcap", "b.dat", "c d.csv"):
            (folder / name).write_bytes(b"")
        tables = (
            "file,room,count\na.pcap,cafe,0\nb.dat,hall,12\n",
            "file,room,count,activity,day,start,end\na.pcap,cafe,2,sit,d1,0,5\nb.dat,cafe,3,,,5,9.5\n",
            'file,room,label\n"c d.csv","big, hall",walk\r\na.pcap,lab,"a ""b"""\n',
            "\ufefffile,room,label,day\na.pcap,cafe,sit,\n",
        )
        self.seeds = [table.encode() for table in tables]
        self._rows = [list(csv.reader(io.StringIO(table.lstrip("\ufeff")))) for table in tables]

    def mutated(self, rng: random.Random) -> bytes:
        if rng.random() < 0.5:
            return super().mutated(rng)
        rows = [list(row) for row in rng.choice(self._rows)]
        for _ in range(rng.choice((1, 2))):
            row = rng.choice(rows)
            row[rng.randrange(len(row))] = rng.choice(
                (str(odd_value(rng))[:9000], "count", "file", "..", "-1", "1e9", "nan", "٣", "x\ny")
            )
        text = io.StringIO()
        csv.writer(text, lineterminator=rng.choice(("\n", "\r\n", "\r"))).writerows(rows)
        return text.getvalue().encode(errors="surrogatepass")

    def attempt(self, data: bytes, rng: random.Random) -> str:
        self._path.write_bytes(data)
        made = "refused"
        for unlabelled in (False, True):
            try:
                sources = sources_by_manifest(self._path, unlabelled=unlabelled)
            except DataError as error:
                assert str(self._path) in str(error), error
                continue
            assert sources
            assert all(source.room and source.name for source in sources)
            made = "read"
        return made


def subjects() -> dict[str, Make]:
    return {"stores": Stores, "manifests": Manifests}
