"""What a command prints."""

import pytest

from fedapa.cli.output import fail, print_out


def test_a_terminal_is_never_told_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Sentences of a room reach the terminal of whoever runs the server."""
    print_out("room 'a–b' says \x1b[2J\x07,\nand [x] is no colour")
    assert capsys.readouterr().out == ("room 'a–b' says \\x1b[2J\\x07,\nand [x] is no colour\n")
    with pytest.raises(SystemExit):
        fail("\x1b[2J: no such file")
    assert capsys.readouterr().err == "fedapa: \\x1b[2J: no such file\n"
