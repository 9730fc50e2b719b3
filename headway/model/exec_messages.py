"""What client, gateway and node say to each other about a command beside a run's program.

Over a WebSocket: bytes of the standard streams are binary messages, whose first byte says
which stream; everything else is JSON in text messages.
"""

import enum
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from headway.errors import InvalidInput, shown

SHELL = ("sh", "-c", 'exec "$(command -v bash || command -v sh)"')
"""The command where none is named: the better shell of those that the image has."""
PONG_WITHIN_S = 300.0
"""An answer to a ping waits behind data that somebody is slow to take; one who is gone has none."""
_MOST_ARGUMENTS = 1_000
_MOST_CHARACTERS = 65_536
_SIDE = Field(ge=1, le=10_000)


class StandardStream(enum.IntEnum):
    """A stream that a command has, by its usual number."""

    INPUT = 0
    OUTPUT = 1
    ERROR = 2


@dataclass(frozen=True, slots=True)
class StreamData:
    """Bytes of one stream; none at all mean the end of the input."""

    stream: StandardStream
    data: bytes


class _Control(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class WindowSize(_Control):
    """How large the user's terminal is, at first and whenever that changes."""

    kind: Literal["window"] = "window"
    rows: Annotated[int, _SIDE]
    columns: Annotated[int, _SIDE]


class ExecCommand(_Control):
    """The first message: what to start."""

    kind: Literal["command"] = "command"
    arguments: Annotated[
        tuple[Annotated[str, Field(max_length=_MOST_CHARACTERS, pattern=r"^[^\x00]*$")], ...],
        Field(min_length=1, max_length=_MOST_ARGUMENTS),
    ]
    window: WindowSize | None = None
    """Of the terminal that it gets; None: it gets none."""


class ExecStarted(_Control):
    """The first answer: the command runs and reads its input."""

    kind: Literal["started"] = "started"


class ExecEnd(_Control):
    """The last message: how the command ended."""

    kind: Literal["end"] = "end"
    exit_code: int


class ExecRefusal(_Control):
    """The last message instead: why it was not started, or why its end is not known."""

    kind: Literal["refusal"] = "refusal"
    why: str


_Controls = WindowSize | ExecCommand | ExecStarted | ExecEnd | ExecRefusal
ExecMessage = StreamData | _Controls
_READ: TypeAdapter[_Controls] = TypeAdapter(Annotated[_Controls, Field(discriminator="kind")])


def written(message: ExecMessage) -> str | bytes:
    """*message* as a WebSocket carries it: text, or bytes."""
    if isinstance(message, StreamData):
        return bytes([message.stream]) + message.data
    return message.model_dump_json()


def read(message: str | bytes) -> ExecMessage:
    """What a WebSocket has carried.

    Raises:
        InvalidInput: It is none of the messages.
    """
    if isinstance(message, bytes):
        if message[:1] not in (b"\0", b"\1", b"\2"):
            raise InvalidInput("stream", message[:1].hex(), "begin with 00, 01 or 02")
        return StreamData(StandardStream(message[0]), message[1:])
    try:
        return _READ.validate_json(message)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(each) for each in first["loc"]) or "message"
        raise InvalidInput(field, shown(message, 80), first["msg"]) from error
