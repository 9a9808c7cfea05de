"""Listening: an engine that keeps what passes through another one, for who measures what it tells.

Nothing keeps uploads otherwise: a server merges them and forgets them. ``fedapa reproduce leaks``
alone puts it around an engine, with simulated rooms or rooms of one's own; no option of a run does.
"""

from collections.abc import Mapping

from fedapa.algorithms.algorithm import Payload, Roster, Round
from fedapa.federation.messages import Rejected, Reply, Request
from fedapa.federation.rounds import Engine
from fedapa.payload import decode

__all__ = ["Listening"]


class Listening:
    """An engine: all that it does is the other's, and it remembers both directions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.uploads: dict[int, dict[str, Payload]] = {}
        """round → room → what it sent, as the server decodes it; rounds count from 1."""
        self.downloads: dict[int, dict[str, Payload]] = {}
        """exchange → room → what it got."""

    def roster(self) -> Roster:
        """The other engine's."""
        return self._engine.roster()

    def exchange(
        self, round: Round, requests: Mapping[str, Request]
    ) -> Mapping[str, Reply | Rejected]:
        """The other engine's, kept."""
        replies = self._engine.exchange(round, requests)
        self.uploads[round.number] = {
            room: decode(reply.upload, f"upload of room '{room}'")
            for room, reply in replies.items()
            if isinstance(reply, Reply) and reply.upload is not None
        }
        self.downloads[round.number] = {
            room: decode(download, f"download of room '{room}'")
            for room in requests
            if (download := requests[room].download) is not None
        }
        return replies
