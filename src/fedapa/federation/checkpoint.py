"""Checkpoints: the server's state after a round in one file, replaced in one step."""

from dataclasses import dataclass
from pathlib import Path

from fedapa.files import write_bytes
from fedapa.payload import Tree, Value, decode, encode_parts

__all__ = ["Checkpoint"]


@dataclass(frozen=True)
class Checkpoint:
    """A file that always holds the last whole state, whatever happens while the next is written."""

    path: Path

    def save(self, state: Tree) -> None:
        """Replace the state; a full disk or a crash leaves the previous one."""
        write_bytes(self.path, *encode_parts(state, travels=False))

    def load(self) -> dict[str, Value] | None:
        """The last state, or none if nothing was saved yet."""
        if not self.path.is_file():
            return None
        return decode(self.path.read_bytes(), str(self.path))
