"""The worker of a room: it does what the SuperNode got, with Flower's libraries and torch.

It comes with the first message and goes when there was none for a while (room.py). It is given
tokens of tasks, one line each, and tells in lines what it does.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict

from flwr.app import Context, Message
from flwr.supercore.constant import TaskType

from fedapa import __version__, processes
from fedapa.federation.engines.frames import (
    EXCHANGE,
    INTRODUCE,
    REFUSED,
    TELL,
    Frames,
    pack,
    unpack,
)
from fedapa.federation.network.app import app_bundle, make_client_app
from fedapa.federation.network.flower_calls import Tasks
from fedapa.federation.network.place import Place

__all__ = ["done", "main"]


def done(
    place: Place,
    app: Callable[[Message, Context], Message],
    say: Callable[[str], None],
    message: Message,
    context: Context,
    app_hash: str,
) -> Message:
    """The reply to a message of a server that has our app; one with another is refused."""
    if app_hash != app_bundle()[1]:
        reason = (
            f"the server's app {app_hash[:12]} is not that of fedapa {__version__} "
            f"({app_bundle()[1][:12]}); install the same release on both"
        )
        say(f"refused: {reason}")
        return Message(pack({REFUSED: reason.encode()}), reply_to=message)
    owners = {name: value for name, value in asdict(place).items() if value is not None}
    context.node_config = {name: str(value) for name, value in owners.items()}
    sentences = {
        TELL: "telling what data there is",
        INTRODUCE: "introducing itself",
        EXCHANGE: f"round {message.metadata.group_id}: working",
    }
    say(sentences.get(message.metadata.message_type, "working"))
    began = time.monotonic()
    reply = app(message, context)
    refused = unpack(reply.content, "own reply").get(REFUSED)
    if refused is None:
        say(f"answered after {time.monotonic() - began:.1f} s; waiting")
    else:
        say(f"could not answer: {refused.decode()}; waiting")
    return reply


class _Worker:
    def __init__(self, place: Place) -> None:
        # Lines go through a copy: what a library prints goes to the log.
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._place = place
        self._telling = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[Future[Frames], str, Frames] | None]
        self._jobs = queue.SimpleQueue()
        self._app = make_client_app(self._answering)

    def _tell(self, **values: object) -> None:
        with self._telling:
            self._out.write(json.dumps(values) + "\n")

    def _say(self, sentence: str) -> None:
        self._tell(said=sentence)

    def _answering(self, _: Place, action: str, frames: Frames) -> Frames:
        """In the thread of a message: wait until the main thread has made the answer."""
        job: Future[Frames] = Future()
        self._jobs.put((job, action, frames))
        return job.result()

    def _work(self, message: Message, context: Context, app_hash: str) -> Message:
        return done(self._place, self._app, self._say, message, context, app_hash)

    def _do(self, address: str, token: str) -> None:
        try:
            with contextlib.closing(Tasks(address, TaskType.CLIENT_APP)) as tasks:
                tasks.answer(token, self._work)
        except Exception as error:  # of one message; the next one may be fine
            self._say(f"a message was lost ({type(error).__name__}: {error})"[:300])

    def _listen(self) -> None:
        for line in sys.stdin:
            given = (str(value) for value in json.loads(line))
            # In a thread: a message that a dead server began to send never comes, and Flower waits
            # for it for two hours.
            threading.Thread(target=self._do, args=tuple(given), daemon=True).start()
        self._jobs.put(None)

    def serve(self) -> None:
        """Until nobody gives tokens any more; one answer at a time, in the main thread."""
        import torch

        from fedapa.federation.network.answering import answer

        torch.set_num_threads(1)
        processes.keep_memory()
        threading.Thread(target=self._listen, daemon=True).start()
        while (job := self._jobs.get()) is not None:
            future, action, frames = job
            self._tell(busy=True)
            try:
                future.set_result(answer(self._place, action, frames))
            except Exception as error:
                future.set_exception(error)
            self._tell(busy=False)


def main() -> None:
    """Serve the room that the first argument names, tokens from standard input."""
    _Worker(Place(**json.loads(sys.argv[1]))).serve()
