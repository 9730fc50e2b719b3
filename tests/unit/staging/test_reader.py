"""The other end of the process that reads a data set."""

import os
from multiprocessing import Pipe

import pytest

from headway.errors import SourceUnreachable
from headway.staging import reader


def test_a_child_that_stops_in_the_middle_of_a_message_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would have been waited for without end: what it said had begun."""
    monkeypatch.setattr(reader, "_MESSAGE_S", 0.1)
    ours, its = Pipe()
    told: list[str] = []

    def kill() -> None:
        told.append("killed")
        its.close()

    child = reader._Child("file:///d", ours, reader.UserReader(), lambda: None, kill)
    os.write(its.fileno(), b"\x00\x00\x00\xff{")  # four bytes of length, one of 255
    with pytest.raises(SourceUnreachable, match="has ended"):
        child.inspect()
    assert told == ["killed"]
