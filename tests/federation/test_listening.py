"""What is overheard is what was sent, and nobody notices."""

from pathlib import Path

import numpy as np
import pytest

from fedapa.errors import RunError
from fedapa.federation import rounds
from fedapa.federation.engines.in_process import InProcess
from fedapa.federation.engines.listening import Listening
from fedapa.federation.participant import kept_state
from fedapa.federation.plan import Plan
from fedapa.learning.prototypes import class_prototypes
from tests.conftest import MakeRooms


def test_listening_keeps_what_rooms_send_and_changes_no_record(
    make_rooms: MakeRooms, tmp_path: Path
) -> None:
    plan = Plan(algorithm="fedapa", rounds=2, training={"epochs": 1})
    algorithm, rooms = plan.build(), make_rooms(architecture="mlp", shape=(10,))
    records = []
    for heard in (False, True):
        with InProcess(algorithm, rooms, folder=tmp_path / str(heard), workers=0) as engine:
            listening = Listening(engine)
            used = listening if heard else engine
            state = rounds.begin(algorithm, used, plan)
            records.append([step.record for step in rounds.run(algorithm, used, plan, state)])
    assert records[0] == records[1]
    assert sorted(listening.uploads) == [1, 2, 3]
    assert listening.uploads[3] == {}, "the last exchange only scores"
    own = kept_state(tmp_path / "True" / "rooms" / rooms[0].name / "run", 2)
    embeddings, labels = rooms[0].embeddings(algorithm.model(rooms[0], own))
    means, counts = class_prototypes(embeddings, labels, len(rooms[0].classes))
    sent = listening.uploads[2][rooms[0].name]
    assert sent["prototypes"] == pytest.approx(means[counts > 0].numpy(), abs=1e-6)
    # A room of FedAPA gets the sets of all others: it is as curious as the server.
    others = np.asarray(listening.downloads[3][rooms[0].name]["clients"])
    theirs = listening.uploads[2][rooms[1].name]
    assert others[0][theirs["present"]] == pytest.approx(theirs["prototypes"])


def test_a_state_that_is_gone_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="round-000007"):
        kept_state(tmp_path, 7)
