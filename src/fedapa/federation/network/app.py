"""The thin Flower app: it hands messages to the installed package, and has the release's hash.

A server submits it, a room compares its hash with that of the app which its own installation makes.
The room then runs its own installation: nothing that a server sends is code that runs in a room.
"""

import functools
import hashlib
import warnings
from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedapa import __version__
from fedapa.errors import FedapaError
from fedapa.federation.engines.frames import (
    EXCHANGE,
    INTRODUCE,
    REFUSED,
    TELL,
    Frames,
    pack,
    unpack,
)
from fedapa.federation.network.place import Place

__all__ = ["app_bundle", "client_app", "make_client_app"]

Answer = Callable[[Place, str, Frames], Frames]


def _place_of(context: Context) -> Place:
    return Place.of(context.node_config)


def make_client_app(
    answering: Answer, place_of: Callable[[Context], Place] = _place_of
) -> ClientApp:
    """A client app whose answers come from ``answering``, here or in another process.

    Args:
        answering: makes an answer of a room's place, an action and frames.
        place_of: which room a node is; by default its configuration says so.
    """
    app = ClientApp()

    def serve(message: Message, context: Context) -> Message:
        action = message.metadata.message_type
        try:
            place = place_of(context)
            frames = answering(place, action, unpack(message.content, "message of the server"))
        except FedapaError as error:
            frames = {REFUSED: str(error).encode()}
        return Message(pack(frames), reply_to=message)

    for action in (TELL, INTRODUCE):
        app.query(action.partition(".")[2])(serve)
    app.train(EXCHANGE.partition(".")[2])(serve)
    return app


def _answer_here(place: Place, action: str, frames: Frames) -> Frames:
    from fedapa.federation.network.answering import answer  # torch comes with it

    return answer(place, action, frames)


client_app = make_client_app(_answer_here)
"""What answers in the process that Flower gives it; rooms of ours wait without torch."""


@functools.cache
def app_bundle() -> tuple[bytes, str]:
    """The app as Flower's bundle, the same bytes for the same release, and its hash."""
    from flwr.cli.build import build_fab_from_files

    files = {name: text.encode() for name, text in _FILES.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Flower's own, of a newer pathspec
        bundle, _ = build_fab_from_files(files)
    return bundle, hashlib.sha256(bundle).hexdigest()


_FILES = {
    "pyproject.toml": f"""[project]
name = "fedapa-rooms"
version = "{__version__}"
description = "Rooms that learn to count people together"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedapa"

[tool.flwr.app.components]
serverapp = "rooms:server_app"
clientapp = "rooms:client_app"
""",
    "rooms.py": '''"""The app of fedapa: everything is in the installed package."""

from fedapa.federation.network.app import client_app
from fedapa.federation.network.server_app import server_app
''',
}
"""What is in the bundle: the release, and where the installed package has the rest."""
