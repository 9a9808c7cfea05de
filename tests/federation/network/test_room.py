"""A room's own process: whose app it answers, and how it begins."""

from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedapa.errors import DataError
from fedapa.federation.engines.frames import REFUSED, TELL, pack, unpack
from fedapa.federation.network.app import app_bundle, make_client_app
from fedapa.federation.network.place import Place
from fedapa.federation.network.room import Connection, _check_place, _done, make_room_folder
from fedapa.federation.network.server_folder import ServerFolder, Settings
from tests.conftest import MakeStore
from tests.federation.fake_grid import through_codec


def asked() -> Message:
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    return through_codec(Message(pack({"plan": b""}), 7, TELL), "message 1")


def test_only_the_app_of_the_installed_release_is_answered() -> None:
    """With another hash nothing is done: no frame of the message is even looked at."""
    place, done, said = Place("cafe", "rooms.h5", "cafe"), [], []

    def answering(*arguments: Any) -> dict[str, bytes]:
        done.append(arguments)
        return {"card": b"told"}

    def reply(app_hash: str) -> dict[str, bytes]:
        context = Context(1, 7, {"room": "the server's word"}, RecordDict(), {})
        app = make_client_app(answering)
        return unpack(_done(place, app, said.append, asked(), context, app_hash).content, "reply")

    refused = reply("0" * 64)[REFUSED].decode()
    assert "the server's app 000000000000 is not that of fedapa" in refused
    assert not done
    assert said == [f"refused: {refused}"]
    assert reply(app_bundle()[1]) == {"card": b"told"}
    assert done[0][0] == place, "which room it is says its owner, not the server"


def test_a_room_without_a_key_or_without_its_data_does_not_start(
    make_store: MakeStore, tmp_path: Path
) -> None:
    store = make_store()
    with pytest.raises(DataError, match="holds no key; make one with 'fedapa room init"):
        _check_place(Place("cafe", str(store), str(tmp_path / "none")))
    make_room_folder(tmp_path / "cafe")
    _check_place(Place("cafe", str(store), str(tmp_path / "cafe")))
    with pytest.raises(DataError, match="there is no room 'caffe'; did you mean 'cafe'"):
        _check_place(Place("caffe", str(store), str(tmp_path / "cafe")))


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    made = ServerFolder.make(tmp_path / "server", Settings("localhost"))
    Connection("localhost:8443", made.authority)
    with pytest.raises(DataError, match=r"expected the ca\.crt of the server"):
        Connection("localhost:8443", tmp_path / "ca.crt")
