"""What commands say of arrays."""

import pytest

from headway.cli.arrays import tell_of


def test_an_array_that_was_handed_in_is_told_of_in_two_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell_of({"name": "sweep\x1b[2J", "array_id": "0123456789", "size": 10})
    told = capsys.readouterr().out
    assert len(told.splitlines()) == 2
    assert "\\n" not in told
    assert "\x1b" not in told
    assert "10 members" in told
