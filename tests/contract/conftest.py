"""Rooms for the contract tests: of features for the algorithms that need them."""

import math
from typing import Any

import pytest

from fedapa.algorithms import find
from fedapa.rooms.room import Room
from tests.conftest import MakeRooms


@pytest.fixture
def make_rooms(request: pytest.FixtureRequest, make_rooms: MakeRooms) -> MakeRooms:
    """The same rooms as everywhere; where the algorithm ``name`` counts from numbers, each window
    is one row of numbers and every net the one for them."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if "name" not in params or not find(params["name"]).needs_features:
        return make_rooms

    def of_features(
        *arguments: Any, shape: tuple[int, ...] = (12, 10), **others: Any
    ) -> list[Room]:
        flat = {**others, "shape": (math.prod(shape),), "architecture": "mlp"}
        return make_rooms(*arguments, **flat)

    return of_features
