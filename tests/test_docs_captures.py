"""The table of errors in docs/captures.md against the source."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_error_of_the_table_can_be_met() -> None:
    table = (ROOT / "docs" / "captures.md").read_text().partition("## Errors and what to do")[2]
    words = re.findall(r"^\| `([^`]+)` \|", table, re.M)
    assert len(words) > 25
    source = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    # Sentences are broken over lines in the source.
    source = re.sub(r'"\s*\n\s*f?"', "", source)
    for each in words:
        assert each in source, each


def test_formats_of_the_table_are_those_of_the_reader() -> None:
    from fedapa.csi.nexmon_format import CHIPS

    page = (ROOT / "docs" / "captures.md").read_text()
    assert all(chip in page for chip in CHIPS.values())
