"""Reads data sets through a process that is the job's user: nothing a job names is opened here."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Protocol

from headway.errors import (
    InvalidInput,
    SourceChanged,
    SourceMissing,
    SourceUnreachable,
)
from headway.model.address import read_uri
from headway.model.document import HIDDEN
from headway.model.job_fields import Refused
from headway.staging.rules import SourceRules
from headway.staging.source import CHUNK_BYTES, FIELD, Source, SourceFile, stored_name

_ERRORS = {each.__name__: each for each in (SourceMissing, SourceUnreachable, SourceChanged)}
_CHECK_EVERY_S = 0.5
_END_S = 5.0
_MESSAGE_S = 60.0
"""A message that has begun has to be whole within this time: it comes out of memory."""
_MOST_BYTES = 1 << 30
"""A longer message is no answer: a set of ten million files has a shorter one."""
_KEPT_FROM_IT = ("PREFECT", "HEADWAY")
"""Variables that begin so hold the site's own secrets."""

Check = Callable[[], None]
"""Is called often while a source is waited for; raises to give up."""


class Reading(Protocol):
    """One data set that is being read."""

    def inspect(self) -> Source:
        """What is there now. Raises `StagingError`."""
        ...

    def pieces(self, file: SourceFile) -> Iterator[bytes]:
        """The bytes of a file as it was inspected last, in order. Raises `StagingError`."""
        ...

    def probe(self, file: SourceFile) -> None:
        """Raise what reading *file* would raise, such as that it is not allowed here."""
        ...


class Reader(Protocol):
    """Opens data sets for one user. The fake is `headway.testing.staging.OpenReader`."""

    @property
    def user(self) -> tuple[int, int] | None:
        """Ids that data sets are read as and belong to; None for this process's own."""
        ...

    def reading(self, uri: str, check: Check) -> AbstractContextManager[Reading]:
        """Read *uri* within the block.

        Raises:
            InvalidInput: The address is none that a job may name.
        """
        ...


@dataclass(frozen=True, slots=True)
class UserReader:
    """Port `Reader`: one process for each data set, ended with its block.

    Attributes:
        user: As in the port.
        rules: What may be read.
    """

    user: tuple[int, int] | None = None
    rules: SourceRules = field(default_factory=SourceRules)

    @contextmanager
    def reading(self, uri: str, check: Check) -> Iterator[Reading]:
        """Start the process, and end it with the block, whatever it is doing then."""
        _check_address(uri)
        ours, its = Pipe()
        with ours:
            with its:
                child = _start(its.fileno())
            try:
                yield _Child(uri, ours, self, check, child.kill)
            finally:
                child.kill()
                with suppress(subprocess.TimeoutExpired):  # it hangs in a file system that is gone
                    child.wait(_END_S)


def _check_address(uri: str) -> None:
    try:
        read_uri(uri)
    except Refused as refused:
        raise InvalidInput(FIELD, HIDDEN if refused.hidden else uri, refused.allowed) from None


def _start(end: int) -> subprocess.Popen[bytes]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(_KEPT_FROM_IT)}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "headway.staging.child", str(end)],
        pass_fds=[end],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=env,
        start_new_session=True,
    )


class _Child:
    """Port `Reading`, by asking the process. Nothing it says is trusted to be more than JSON."""

    def __init__(
        self,
        uri: str,
        child: Connection,
        reader: UserReader,
        check: Check,
        kill: Callable[[], None],
    ) -> None:
        self._uri = uri
        self._child = child
        self._check = check
        self._kill = kill
        self._send({"uri": uri, "rules": reader.rules.write(), "user": reader.user})

    def inspect(self) -> Source:
        """What is there now."""
        self._send({"do": "inspect"})
        told = self._answer()
        try:
            files = tuple(_file(number, *each) for number, each in enumerate(told["files"]))
            return Source(self._uri, bool(told["is_directory"]), files, str(told["identity"]))
        except (KeyError, TypeError, ValueError) as error:
            raise SourceUnreachable(self._uri, f"what reads it said {error!r}") from error

    def pieces(self, file: SourceFile) -> Iterator[bytes]:
        """The bytes of *file*, in pieces of at most 4 MiB."""
        self._send({"do": "open", "file": int(file.address)})
        while "piece" in self._answer():
            yield self._receive(CHUNK_BYTES)

    def probe(self, file: SourceFile) -> None:
        """Have the first byte of *file* read."""
        self._send({"do": "probe", "file": int(file.address)})
        self._answer()

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # what it said before it ended is still to be read
            self._child.send_bytes(json.dumps(message).encode())

    def _answer(self) -> dict[str, Any]:
        told = json.loads(self._receive(_MOST_BYTES))
        if not isinstance(told, dict):
            raise SourceUnreachable(self._uri, "what reads it gave no answer")
        if "error" in told:
            raise _ERRORS.get(told["error"], SourceUnreachable)(self._uri, str(told["cause"]))
        return told

    def _receive(self, most_bytes: int) -> bytes:
        while True:
            self._check()
            try:
                if self._child.poll(_CHECK_EVERY_S):
                    return self._whole(most_bytes)
            except (EOFError, OSError) as error:
                cause = "the process that reads it has ended"
                raise SourceUnreachable(self._uri, cause) from error

    def _whole(self, most_bytes: int) -> bytes:
        """The message that has begun; a child that stops in its middle is ended."""
        limit = threading.Timer(_MESSAGE_S, self._kill)
        limit.start()
        try:
            return self._child.recv_bytes(most_bytes)
        finally:
            limit.cancel()


def _file(number: int, name: object, size: object) -> SourceFile:
    """A file by the child's word, which is not trusted: it is written below its set only."""
    stored = stored_name(str(name))
    if stored is None:
        raise ValueError(name)
    return SourceFile(stored, str(number), None if size is None else int(str(size)))
