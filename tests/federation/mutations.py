"""Mutated plans, run folders and messages: what is read, or a sentence of a FedapaError.

Frames have a checksum, so most of them are sealed again, as a hostile room or server would: then
their content is looked at, by the codec, the message and what a server believes of an upload.
"""

import contextlib
import hashlib
import json
import random
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedapa import Plan, algorithms, run
from fedapa.algorithms.algorithm import Round
from fedapa.errors import FedapaError, PayloadError
from fedapa.experiments.presets import preset
from fedapa.federation.acceptance import implausible, sizes_of, take
from fedapa.federation.messages import (
    check_reply,
    decode_agreement,
    decode_card,
    decode_data_card,
    decode_reply,
    decode_request,
    decode_round,
)
from fedapa.federation.run import Run
from fedapa.payload import Tree, decode, encode, leaves
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard
from fedapa.service.training import TrainingRun
from fedapa.toml import parse_toml
from tests.conftest import write_takes
from tests.federation.test_messages import CARD, FRAMES
from tests.fuzz import Make, Subject, mutate, mutate_tree, odd_value

# ---- plans -------------------------------------------------------------------------------------

_WORDS = (
    *("true", "false", "nan", "inf", "-inf", "-1", "0", "1e400", "1e-400", "9" * 30, '""', '"x"'),
    *("[]", "[1]", "{}", "{a = 1}", '"open"', '"\\u0000"', "1979-05-27", "0x7fffffffffffffff"),
    *('["a", "b"]', "[[1]]", '"../../x"', "9223372036854775808", '"' + "y" * 3000 + '"'),
)


class Plans(Subject):
    """Plans of every preset and every algorithm, with each value named."""

    kind = "plans"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        named = [Plan.of(preset("smoke"), {"algorithm": name}) for name in algorithms.names()]
        texts = [plan.toml() for plan in named]
        texts.append(
            'rounds = "open"\nseed = 3\n[data]\nsimulated = "smoke"\n[network]\nquorum = 2'
        )
        self.seeds = [text.encode() for text in texts]

    def mutated(self, rng: random.Random) -> bytes:
        data = rng.choice(self.seeds)
        if rng.random() < 0.4:
            return mutate(data, rng, self.seeds)
        lines = data.decode().splitlines()
        for _ in range(rng.choice((1, 1, 2, 4))):
            place = rng.randrange(len(lines))
            name, equals, _ = lines[place].partition(" = ")
            if equals and rng.random() < 0.8:
                lines[place] = f"{name} = {rng.choice(_WORDS)}"
            else:
                lines.insert(rng.randrange(len(lines)), lines[place])
        return "\n".join(lines).encode()

    def attempt(self, data: bytes, rng: random.Random) -> str:
        try:
            document = parse_toml(data.decode(errors="replace"), "plan.toml")
            document.pop("preset", None)
            plan = Plan.of(document)
            plan.build()
        except FedapaError as error:
            assert len(str(error)) < 20_000, "a sentence of pages"
            return "refused"
        assert Plan(**parse_toml(plan.toml(), "again")) == plan, "a resolved plan is not itself"
        return "read"


# ---- run folders -------------------------------------------------------------------------------


def small_plan(store: Path, **values: Any) -> Plan:
    return Plan.of(
        {
            "rounds": 2,
            "data": {"file": str(store), "window": 16, "split": "recording"},
            "model": {"architecture": "tiny", "width": 4},
            "training": {"batch_size": 4},
        },
        values,
    )


class Runs(Subject):
    """One file of a finished run, as who reports, follows or resumes the run reads it.

    The first line of an input names the file.
    """

    kind = "runs"
    seconds = 30.0  # some are gone on with

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store, self._folder = folder / "rooms.h5", folder / "run"
        write_takes(self._store, {"cafe": {0: 2, 1: 2}, "hall": {0: 2, 1: 2}}, packets=32)
        self._plan = small_plan(self._store)
        run(self._plan, out=self._folder, workers=0)
        self._copy = folder / "copy"
        files = [path for path in sorted(self._folder.rglob("*")) if path.is_file()]
        self._files = {
            str(path.relative_to(self._folder)): path.read_bytes()
            for path in files
            if path.suffix != ".safetensors" and path.name != ".lock"
        }
        self.seeds = [f"{name}\n".encode() + data for name, data in self._files.items()]
        self._tried = 0

    def mutated(self, rng: random.Random) -> bytes:
        name = rng.choice(sorted(self._files))
        data = self._files[name]
        if name.endswith((".json", ".jsonl")) and rng.random() < 0.6:
            lines = data.decode().splitlines() if name.endswith(".jsonl") else [data.decode()]
            place = rng.randrange(len(lines))
            changed = mutate_tree(json.loads(lines[place]), rng, odd_value)
            lines[place] = json.dumps(changed)
            text = "\n".join(lines) + "\n"
            return f"{name}\n".encode() + text.encode(errors="surrogatepass")
        if data.startswith(b"FAPA") and rng.random() < 0.6:
            return f"{name}\n".encode() + resealed(data, rng)
        return f"{name}\n".encode() + mutate(data, rng, list(self._files.values()))

    def attempt(self, data: bytes, rng: random.Random) -> str:
        name, _, content = data.partition(b"\n")
        path = self._folder / name.decode()
        path.write_bytes(content)
        self._tried += 1
        made = "refused"
        try:
            with contextlib.suppress(FedapaError):
                Run.load(self._folder)
                made = "read"
            with contextlib.suppress(FedapaError):
                Run.can_go_on(self._folder)
            with contextlib.suppress(FedapaError):
                followed = TrainingRun(self._folder)
                told = followed.document()
                if told is not None:
                    told.model_dump_json()
                followed.weights(1)
            if self._tried % 200 == 0:
                self._go_on()
        finally:
            path.write_bytes(self._files[name.decode()])
        return made

    def _go_on(self) -> None:
        """Make the run longer, on a copy."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._folder, self._copy)
        with contextlib.suppress(FedapaError), np.errstate(all="ignore"):
            run(small_plan(self._store, rounds=3), out=self._copy, resume=True, workers=0)


# ---- messages ----------------------------------------------------------------------------------

_HEAD = struct.Struct("<4sHHQ16s")


def sealed(body: bytes) -> bytes:
    """A frame whose length and checksum fit."""
    checksum = hashlib.blake2b(body, digest_size=16).digest()
    return _HEAD.pack(b"FAPA", 1, 0, len(body), checksum) + body


def odd_leaf(rng: random.Random) -> Any:
    """What nobody expects in a tree of ours."""
    if rng.random() < 0.5:
        shape = rng.choice(((), (0,), (1,), (3, 3), (2, 0, 3), (4, 1, 1, 1), (3,)))
        kind = rng.choice(("f4", "f8", "f2", "i8", "u8", "i1", "u1", "?", "i4"))
        fill = rng.choice((0, 1, -1, 255, np.nan, np.inf, 1e30))
        with np.errstate(all="ignore"):
            return np.full(shape, fill, "f8").astype(kind)
    value = odd_value(rng)
    return value if not isinstance(value, list) else {}


def _scalars(tree: Any) -> Any:
    """Without what the codec would not write: a stranger has no such limits, but our encoder."""
    if isinstance(tree, Mapping):
        return {word.replace("/", "-") or "-": _scalars(value) for word, value in tree.items()}
    if isinstance(tree, str):
        return tree.encode(errors="replace").decode()
    return tree


def resealed(frame: bytes, rng: random.Random) -> bytes:
    """A frame with other content that looks whole."""
    if rng.random() < 0.4:
        body = frame[_HEAD.size :]
        return sealed(mutate(body, rng, [body]))
    tree: Any = decode(frame)
    facts = tree.get("facts")
    if isinstance(facts, str) and rng.random() < 0.7:
        tree = {**tree, "facts": json.dumps(mutate_tree(json.loads(facts), rng, odd_value))}
    else:
        tree = mutate_tree(tree, rng, odd_leaf)
    try:
        return encode(_scalars(tree))
    except (PayloadError, ValueError, AttributeError, TypeError):
        return frame[: rng.randrange(len(frame))]


READERS: dict[str, Callable[[bytes], Any]] = {
    "agreement": decode_agreement,
    "card": decode_card,
    "data card": decode_data_card,
    "round": decode_round,
    "request": decode_request,
    "reply": decode_reply,
}


class Messages(Subject):
    """What crosses between a server and its rooms, and uploads of every algorithm."""

    kind = "messages"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        write_takes(folder / "rooms.h5", {"cafe": {0: 2, 1: 2}, "hall": {0: 2, 1: 2}}, packets=32)
        self._uploads: dict[str, tuple[RoomCard, Mapping[str, Any], bytes]] = {}
        round = Round(1, 2, Key(0) / "round" / 1)
        for name in ("fedapa", "fedavg", "fedproto", "fedjoin"):
            plan = small_plan(folder / "rooms.h5", algorithm=name, rounds=1)
            out = folder / name
            run(plan, out=out, workers=0)
            state = next((out / "rooms" / "cafe").rglob("round-000001.state"))
            checkpoint = decode((out / "checkpoint").read_bytes())
            rooms: Any = checkpoint["rooms"]
            card = decode_card(encode(rooms["cafe"]["card"]))
            upload: Any = decode(state.read_bytes())["upload"]
            forms = plan.build().uploads(card, round)
            self._uploads[name] = card, forms, upload.tobytes()
        self._frames = {**FRAMES, **{name: entry[2] for name, entry in self._uploads.items()}}
        self.seeds = [f"{kind}\n".encode() + frame for kind, frame in self._frames.items()]

    def mutated(self, rng: random.Random) -> bytes:
        kind = rng.choice(sorted(self._frames))
        frame = self._frames[kind]
        if rng.random() < 0.15:
            made = mutate(frame, rng, list(self._frames.values()))
        else:
            made = resealed(frame, rng)
        return f"{kind}\n".encode() + made

    def attempt(self, data: bytes, rng: random.Random) -> str:
        name, _, frame = data.partition(b"\n")
        kind = name.decode()
        try:
            if kind in READERS:
                message = READERS[kind](frame)
                if kind == "reply":
                    with contextlib.suppress(PayloadError):
                        check_reply(message, CARD)
            else:
                card, forms, own = self._uploads[kind]
                upload: Tree = take(frame, card, forms)
                sizes = {"a": sizes_of(upload, forms), "b": sizes_of(decode(own), forms)}
                assert set(implausible(sizes, {})) <= {"a", "b"}
                assert all(path in forms for path, _ in leaves(upload))
        except PayloadError as error:
            assert len(str(error)) < 5000, "a sentence of pages"
            return "refused"
        return "read"


def subjects() -> dict[str, Make]:
    return {"plans": Plans, "runs": Runs, "messages": Messages}
