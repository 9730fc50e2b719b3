"""The log of a run, read from outside while it grows; its secrets are struck out."""

import errno
from collections.abc import Iterator
from pathlib import Path

from headway.errors import LogElsewhere, RunUnknown
from headway.ledger.records import RunRecord
from headway.prefect.client import ListedRun, PrefectServer
from headway.run.here import container_name
from headway.runtime import secretfiles
from headway.runtime.logfile import read_chunk
from headway.runtime.redact import Redactor
from headway.site import Site
from headway.views.run_document import is_over

_POLL_S = 0.5
_CHUNK_BYTES = 1 << 20


def log_to_show(site: Site, run_id: str, attempt: int) -> Path:
    """Where the log of an attempt lies on this node."""
    return site.settings.runs_dir / run_id / "log" / f"attempt-{attempt}.log"


class LogReader:
    """Reads a run's log on this node from where it left off, all attempts in order."""

    def __init__(self, site: Site, run_id: str) -> None:
        """At the beginning of the first attempt's log."""
        self._site = site
        self._run_id = run_id
        self._attempt = 1
        self._log = AttemptLog(site, run_id, 1)

    def pieces(self, newest: int) -> Iterator[bytes]:
        """What has come since, up to the attempt *newest*."""
        while self._attempt <= newest:
            yield from self._log.new()
            if self._attempt == newest:
                return
            yield self._log.rest()
            self._attempt += 1
            self._log = AttemptLog(self._site, self._run_id, self._attempt)

    def rest(self) -> bytes:
        """What was held back, when nothing more comes."""
        return self._log.rest()


def log_pieces(
    site: Site, server: PrefectServer, seen: ListedRun, *, follow: bool
) -> Iterator[bytes]:
    """The run's log in pieces, all attempts in order; with *follow* until the run has ended.

    Raises:
        LogElsewhere: The newest attempt's log is not on this node.
    """
    reader = LogReader(site, seen.run_id)
    while True:
        try:
            record = site.ledger.runs.get(seen.run_id)
        except RunUnknown:
            record = None
        over = is_over(seen)
        yield from reader.pieces(record.attempt if record is not None else 1)
        if record is not None:
            refuse_elsewhere(site, record)
        if not follow or over:
            yield reader.rest()
            return
        site.clock.sleep(_POLL_S)
        seen = server.run(seen.run_id)


class AttemptLog:
    """The log of one attempt, read on and on; its secrets are struck out.

    What they are is known while its container is there; then its file is free of them.
    """

    def __init__(self, site: Site, run_id: str, attempt: int) -> None:
        self._path = log_to_show(site, run_id, attempt)
        self._secrets = site.settings.secrets_dir / container_name(run_id, attempt)
        self._redactor: Redactor | None = None
        self._offset = 0

    def new(self) -> Iterator[bytes]:
        """What has come since it was last asked, in pieces."""
        if self._redactor is None:
            if not self._path.exists():
                return
            if self._path.is_symlink() or not self._path.is_file():
                raise OSError(errno.EINVAL, "its program put something else there", self._path)
            self._redactor = Redactor(secretfiles.read(self._secrets))
        while True:
            chunk = read_chunk(self._path, self._offset, _CHUNK_BYTES)
            if not chunk.data and not chunk.skipped_bytes:
                return
            self._offset = chunk.next_offset
            yield self._redactor.feed(chunk.data)

    def rest(self) -> bytes:
        """What was held back, when nothing more comes."""
        return self._redactor.rest() if self._redactor is not None else b""


def refuse_elsewhere(site: Site, record: RunRecord) -> None:
    """Raises `LogElsewhere` where the newest attempt's log is on another node."""
    if record.node is None or record.node == site.settings.node or record.started_at is None:
        return
    path = log_to_show(site, record.run_id, record.attempt)
    if not path.exists():
        raise LogElsewhere(record.run_id, record.node, str(path.relative_to(site.settings.home)))
