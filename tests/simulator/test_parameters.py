"""Every parameter of the simulator says what it is and where its value comes from."""

import ast
from pathlib import Path

import pytest

from fedapa.simulator import room

FOLDER = Path(room.__file__).parent
SETTINGS = {
    "room.py": ("Walls", "Furniture"),
    "people.py": ("Body", "Motion"),
    "channel.py": ("Radio",),
    "receiver.py": ("Receiver",),
}
SOURCES = ("Assumption", "ITU", "IEEE", "ISO", "ETSI", "(", "as Broadcom", "uniform", "at rest")


@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file, names in SETTINGS.items() for name in names]
)
def test_every_field_has_a_text_with_a_source(file: str, name: str) -> None:
    tree = ast.parse((FOLDER / file).read_text())
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    for field, text in zip(body, [*body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or "ClassVar" in ast.unparse(field):
            continue
        assert isinstance(text, ast.Expr), field.target
        assert isinstance(text.value, ast.Constant), field.target
        words = str(text.value.value)
        assert len(words) > 15, ast.unparse(field)
        if ast.unparse(field.target) not in ("device",):
            assert any(source in words for source in SOURCES), ast.unparse(field)
