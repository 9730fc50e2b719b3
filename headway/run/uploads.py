"""Reads a data set that a member has put: from this disk, else from the site's gateway."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import httpx

from headway.credentials import local_address
from headway.errors import InvalidInput, NoCredentials
from headway.model.address import upload_name
from headway.model.upload import DATA
from headway.pinning import trust
from headway.site import Site, as_ids
from headway.staging.errors import SourceMissing, SourceUnreachable
from headway.staging.reader import Check, Reading
from headway.staging.source import Source, SourceFile

_ANSWER_S = 60.0
_PAUSE_S = 1.0


@dataclass(frozen=True)
class UploadReader:
    """Port `Reader`, for the data sets of one team; nothing that a job names is opened."""

    site: Site = field(repr=False)
    team: str
    as_user: str
    """``uid:gid`` whom the copies belong to; empty for this process's own."""

    @property
    def user(self) -> tuple[int, int] | None:
        """As in the port."""
        return as_ids(self.as_user)

    @contextmanager
    def reading(self, uri: str, check: Check) -> Iterator[Reading]:
        """Read *uri* within the block."""
        check()
        with ExitStack() as stack:
            yield _Upload(self, uri, check, stack)


class _Upload:
    """Port `Reading`: chunks of one team, of this machine where the gateway runs on it."""

    def __init__(self, reader: UploadReader, uri: str, check: Check, stack: ExitStack) -> None:
        self._site, self._team = reader.site, reader.team
        self._uri = uri
        self._check = check
        self._stack = stack
        self._chunks: dict[str, tuple[str, ...]] = {}

    def inspect(self) -> Source:
        """What has this name now."""
        found = self._site.ledger.uploads.manifest(self._team, upload_name(self._uri) or "")
        if found is None:
            raise SourceMissing(self._uri, f"team {self._team} has none of this name any more")
        self._chunks = {each.path: each.chunks for each in found.files}
        files = tuple(SourceFile(each.path, each.path, each.size_bytes) for each in found.files)
        return Source(self._uri, found.is_directory, files, f"{self._team}/{found.content_id}")

    def pieces(self, file: SourceFile) -> Iterator[bytes]:
        """The chunks of *file*, each compared with its SHA-256."""
        for sha256 in self._chunks[file.name]:
            self._check()
            data = self._read(sha256)
            if hashlib.sha256(data).hexdigest() != sha256:
                raise SourceUnreachable(self._uri, f"its part {sha256[:12]} came damaged")
            yield data

    def probe(self, file: SourceFile) -> None:
        """Read the first chunk of *file*."""
        next(self.pieces(file), None)

    def _read(self, sha256: str) -> bytes:
        """One chunk, whatever it has. Raises `SourceUnreachable`."""
        found = self._site.upload_chunks.read(self._team, sha256)
        try:
            while found is None and (found := self._asked(sha256)) is None:
                self._check()
                self._site.clock.sleep(_PAUSE_S)
        except (httpx.HTTPError, InvalidInput, NoCredentials) as error:
            raise SourceUnreachable(self._uri, str(error) or type(error).__name__) from error
        return found

    def _asked(self, sha256: str) -> bytes | None:
        """What the gateway gives; None: ask later."""
        path, params = f"/data/chunks/{sha256}", {"team": self._team}
        with self._gateway.stream("GET", path, params=params) as answer:
            if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
                return None
            answer.raise_for_status()
            data = bytearray()
            for piece in answer.iter_bytes():
                data += piece
                if len(data) > DATA.chunk_bytes:
                    raise SourceUnreachable(self._uri, "the gateway answers more than a part has")
            return bytes(data)

    @cached_property
    def _gateway(self) -> httpx.Client:
        """The site's gateway, which lets this machine in by its own token."""
        address = local_address(self._site.settings)
        client = httpx.Client(
            base_url=f"{address.url}/v1",
            headers={"Authorization": f"Bearer {address.token}"},
            timeout=_ANSWER_S,
            verify=trust(address.url, address.certificate),
            trust_env=False,
        )
        return self._stack.enter_context(client)
