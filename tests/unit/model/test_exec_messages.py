"""What is said about a command beside a run's program."""

import pytest

from headway.errors import InvalidInput
from headway.model.exec_messages import (
    ExecCommand,
    ExecEnd,
    ExecMessage,
    ExecRefusal,
    StandardStream,
    StreamData,
    WindowSize,
    read,
    written,
)

WINDOW = WindowSize(rows=24, columns=80)


@pytest.mark.parametrize(
    "message",
    [
        StreamData(StandardStream.INPUT, b"\x00\xff{}"),
        StreamData(StandardStream.INPUT, b""),
        StreamData(StandardStream.OUTPUT, "ÿ\x1b[2J".encode()),
        StreamData(StandardStream.ERROR, b"e"),
        WINDOW,
        ExecCommand(arguments=("sh", "-c", "echo 'ü'")),
        ExecCommand(arguments=("top", ""), window=WINDOW),
        ExecEnd(exit_code=137),
        ExecRefusal(why="it does not run"),
    ],
)
def test_what_was_written_is_read(message: ExecMessage) -> None:
    assert read(written(message)) == message


@pytest.mark.parametrize(
    "carried",
    [
        b"",
        b"\x03data",
        "",
        "no JSON",
        "[]",
        "{}",
        '{"kind": "privileged"}',
        '{"kind": "command", "arguments": []}',
        '{"kind": "command", "arguments": "sh"}',
        '{"kind": "command", "arguments": ["a\\u0000b"]}',
        '{"kind": "command", "arguments": ["sh"], "user": "0:0"}',
        '{"kind": "command", "arguments": ["sh"], "window": {"rows": 0, "columns": 80}}',
        '{"kind": "window", "rows": 24, "columns": 100000}',
        '{"kind": "end", "exit_code": "none"}',
    ],
)
def test_what_is_no_message_is_refused(carried: str | bytes) -> None:
    with pytest.raises(InvalidInput):
        read(carried)
