"""All that the server does in a round of FedAPA; a file of its own, since it imports far more."""

import itertools
import time
from typing import Any

import numpy as np
import torch

from benchmarks._peak import peak_megabytes
from benchmarks.aggregation import CLASSES, WIDTH, prototypes_of
from fedapa.algorithms.algorithm import Round
from fedapa.algorithms.fedapa import FedAPA
from fedapa.payload import decode, encode, encode_parts
from fedapa.randomness import Key
from fedapa.rooms.card import RoomCard

__all__ = ["measure_round"]

PEERS = 8  # sets of others in a download: with all of them it would be terabytes


def measure_round(rooms: int) -> dict[str, Any]:
    """What the server does in a round, as ``rounds.run`` does it: no network, no disk.

    All uploads are there at once; each download is made when it is sent.

    Returns:
        Seconds of the whole and of its parts, ``peak_mb``, ``peers`` and ``download_mb``.
    """
    cards = tuple(
        RoomCard(
            name=f"room {number:06}",
            architecture="large",
            windows=1,
            classes=CLASSES,
            width=WIDTH,
            shapes={},
        )
        for number in range(rooms)
    )
    algorithm = FedAPA(peers=PEERS)
    server = algorithm.open(cards, Key(0))
    now = Round(1, 2, Key(0) / "round" / 1)
    prototypes = torch.stack([prototypes_of(rooms, c) for c in range(CLASSES)], dim=1).numpy()
    present = np.ones(CLASSES, bool)
    uploads = {
        card.name: encode({"prototypes": own, "present": present})
        for card, own in zip(cards, prototypes, strict=True)
    }
    del prototypes
    marks = [time.perf_counter()]
    received = {room: decode(upload) for room, upload in uploads.items()}
    marks.append(time.perf_counter())
    server = algorithm.merge(server, received, now)
    del uploads, received
    marks.append(time.perf_counter())
    sent = sum(len(encode(algorithm.download(server, card.name, now))) for card in cards)
    marks.append(time.perf_counter())
    encode_parts({"server": server})
    marks.append(time.perf_counter())
    names = ("uploads", "merge", "downloads", "checkpoint")
    parts = (round(after - before, 3) for before, after in itertools.pairwise(marks))
    return {
        "seconds": round(marks[-1] - marks[0], 3),
        **dict(zip(names, parts, strict=True)),
        "peak_mb": peak_megabytes(),
        "peers": PEERS,
        "download_mb": round(sent / 1e6, 1),
    }
