"""Reads data sets through a process that is the job's user: nothing a job names is opened here."""

import json
import os
import site
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Protocol

from headway.errors import InvalidInput
from headway.model.address import read_uri
from headway.model.document import HIDDEN
from headway.model.job_fields import Refused
from headway.model.object_place import ObjectPlace, secret_for
from headway.staging.errors import SourceChanged, SourceMissing, SourceUnreachable
from headway.staging.rules import SourceRules
from headway.staging.source import CHUNK_BYTES, FIELD, Source, SourceFile, stored_name

_ERRORS = {each.__name__: each for each in (SourceMissing, SourceUnreachable, SourceChanged)}
_STORE = "outputs and logs of all teams' runs are there, which `headway outputs` and `logs` give"
_CHECK_EVERY_S = 0.5
_END_S = 5.0
_MESSAGE_S = 60.0
"""A message that has begun has to be whole within this time: it comes out of memory."""
_MOST_BYTES = 1 << 30
"""A longer message is no answer: a set of ten million files has a shorter one."""
_GIVEN = frozenset(
    {
        "PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE",
        "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    }
)  # fmt: skip
"""Variables of this process that it is given; any other may hold credentials of the site."""
_NONE_OF_THE_MACHINES = {
    "HOME": "/nonexistent",  # ~/.aws, ~/.config/gcloud, ~/.azure, ~/.config/fsspec
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_GCE_CHECK": "true",
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # gRPC, which asks elsewhere than endpoint_url
    "OMP_NUM_THREADS": "1",  # one core, and it may be forbidden to start threads
    "OPENBLAS_NUM_THREADS": "1",
}
"""Storages look there for credentials of the machine where they are given none."""

Check = Callable[[], None]
"""Is called often while a source is waited for; raises to give up."""


class Reading(Protocol):
    """One data set that is being read."""

    def inspect(self) -> Source:
        """What is there now. Raises `StagingError`."""

    def pieces(self, file: SourceFile) -> Iterator[bytes]:
        """The bytes of a file as it was inspected last, in order. Raises `StagingError`."""

    def probe(self, file: SourceFile) -> None:
        """Raise what reading *file* would raise, such as that it is not allowed here."""


class Reader(Protocol):
    """Opens data sets for one user. The fake is `tests.ports.staging.OpenReader`."""

    @property
    def user(self) -> tuple[int, int] | None:
        """Ids that data sets are read as and belong to; None for this process's own."""

    def reading(self, uri: str, check: Check) -> AbstractContextManager[Reading]:
        """Read *uri* within the block.

        Raises:
            InvalidInput: The address is none that a job may name.
        """


def no_secret(block: str) -> object:
    """Where no Secret block can be asked for. Raises `ValueError`."""
    raise ValueError(f"Secret block {block}, which has its credentials, cannot be asked for here")


@dataclass(frozen=True, slots=True)
class Credentials:
    """With what data is read that lies in a storage of objects: never with the site's own."""

    rules: Mapping[str, str] = field(default_factory=dict)
    """The Secret block for an address, as `ContainerPolicy.data_stores`."""
    store_url: str = ""
    """The site's store, of which nothing is read as data; empty for none."""
    secret: Callable[[str], object] = field(default=no_secret, repr=False)
    """Gives the value of a Secret block; raises `HeadwayError`."""

    def options(self, uri: str) -> Mapping[str, object]:
        """What fsspec is given to read *uri*.

        Raises:
            SourceMissing: It may not be read.
        """
        try:
            place = ObjectPlace.of(uri)
            if place is None:
                return {}
            if place.overlaps(self.store_url):
                raise SourceMissing(uri, _STORE)
            block = secret_for(place, self.rules)
            return place.options(None if block is None else self.secret(block))
        except ValueError as error:
            raise SourceMissing(uri, str(error)) from error


@dataclass(frozen=True, slots=True)
class UserReader:
    """Port `Reader`: one process for each data set, ended with its block.

    Attributes:
        user: As in the port.
        rules: What may be read.
        credentials: With what other storage is read.
    """

    user: tuple[int, int] | None = None
    rules: SourceRules = field(default_factory=SourceRules)
    credentials: Credentials = field(default_factory=Credentials)

    @contextmanager
    def reading(self, uri: str, check: Check) -> Iterator[Reading]:
        """Start the process, and end it with the block, whatever it is doing then."""
        try:
            read_uri(uri)
        except Refused as refused:
            raise InvalidInput(FIELD, HIDDEN if refused.hidden else uri, refused.allowed) from None
        with started_child("headway.staging.child") as (end, kill):
            child = _Child(uri, end, check, kill)
            options = dict(self.credentials.options(uri))
            child.send(uri=uri, rules=self.rules.write(), user=self.user, options=options)
            yield child


@contextmanager
def started_child(module: str) -> Iterator[tuple[Connection, Callable[[], None]]]:
    """Have *module* run within the block as a process that gets nothing of the machine's.

    The block has what connects to it, and what kills it. It is to become another user before it
    opens anything (`child.become`).
    """
    ours, its = Pipe()
    with ours:
        with its:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(its.fileno())],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=environment(os.environ),
                start_new_session=True,
            )
        try:
            yield ours, child.kill
        finally:
            child.kill()
            with suppress(subprocess.TimeoutExpired):  # it hangs in a file system that is gone
                child.wait(_END_S)


def environment(ours: Mapping[str, str]) -> dict[str, str]:
    """What the process that reads is given of *ours*: no credentials, and no home with any."""
    given = {name: value for name, value in ours.items() if name in _GIVEN}
    if site.ENABLE_USER_SITE:  # found by the home otherwise
        given["PYTHONUSERBASE"] = site.getuserbase()
    return given | _NONE_OF_THE_MACHINES


@dataclass(frozen=True, slots=True)
class _Child:
    """Port `Reading`, by asking the process. Nothing it says is trusted to be more than JSON."""

    uri: str
    end: Connection
    check: Check
    kill: Callable[[], None]

    def inspect(self) -> Source:
        """What is there now."""
        self.send(do="inspect")
        told = self._answer()
        try:
            files = tuple(_file(number, *each) for number, each in enumerate(told["files"]))
            return Source(self.uri, bool(told["is_directory"]), files, str(told["identity"]))
        except (KeyError, TypeError, ValueError) as error:
            raise SourceUnreachable(self.uri, f"its reader failed: {error!r}") from error

    def pieces(self, file: SourceFile) -> Iterator[bytes]:
        """The bytes of *file*, in pieces of at most 4 MiB."""
        self.send(do="open", file=int(file.address))
        while "piece" in self._answer():
            yield self._receive(CHUNK_BYTES)

    def probe(self, file: SourceFile) -> None:
        """Have the first byte of *file* read."""
        self.send(do="probe", file=int(file.address))
        self._answer()

    def send(self, **message: Any) -> None:
        """Tell it *message*."""
        with suppress(OSError):  # what it said before it ended is still to be read
            self.end.send_bytes(json.dumps(message).encode())

    def _answer(self) -> dict[str, Any]:
        told = json.loads(self._receive(_MOST_BYTES))
        if not isinstance(told, dict):
            raise SourceUnreachable(self.uri, "its reader did not answer")
        if "error" in told:
            raise _ERRORS.get(told["error"], SourceUnreachable)(self.uri, str(told["cause"]))
        return told

    def _receive(self, most_bytes: int) -> bytes:
        while True:
            self.check()
            try:
                if self.end.poll(_CHECK_EVERY_S):
                    return self._whole(most_bytes)
            except (EOFError, OSError) as error:
                cause = "the process that reads it has ended"
                raise SourceUnreachable(self.uri, cause) from error

    def _whole(self, most_bytes: int) -> bytes:
        """The message that has begun; a child that stops in its middle is ended."""
        limit = threading.Timer(_MESSAGE_S, self.kill)
        limit.start()
        try:
            return self.end.recv_bytes(most_bytes)
        finally:
            limit.cancel()


def _file(number: int, name: object, size: object) -> SourceFile:
    """A file by the child's word, which is not trusted: it is written below its set only."""
    stored = stored_name(str(name))
    if stored is None:
        raise ValueError(name)
    return SourceFile(stored, str(number), None if size is None else int(str(size)))
