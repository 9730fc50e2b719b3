"""Reads a data set that a member has put: from this disk, else from the site's gateway."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

import httpx

from headway.credentials import local_address
from headway.errors import InvalidInput, NoCredentials, SourceMissing, SourceUnreachable
from headway.model.address import upload_name
from headway.model.upload import DATA, UploadManifest
from headway.pinning import trust
from headway.site import Site, as_ids
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
        with _Chunks(self.site, self.team, uri, check) as chunks:
            yield _Upload(self, uri, chunks, check)


class _Upload:
    """Port `Reading`."""

    def __init__(self, reader: UploadReader, uri: str, chunks: "_Chunks", check: Check) -> None:
        self._reader = reader
        self._uri = uri
        self._chunks = chunks
        self._check = check
        self._manifest: UploadManifest | None = None

    def inspect(self) -> Source:
        """What has this name now."""
        team, name = self._reader.team, upload_name(self._uri) or ""
        self._manifest = found = self._reader.site.ledger.uploads.manifest(team, name)
        if found is None:
            raise SourceMissing(self._uri, f"team {team} has none of this name any more")
        files = tuple(SourceFile(each.path, each.path, each.size_bytes) for each in found.files)
        return Source(self._uri, found.is_directory, files, f"{team}/{found.content_id}")

    def pieces(self, file: SourceFile) -> Iterator[bytes]:
        """The chunks of *file*, each compared with its SHA-256."""
        known = {} if self._manifest is None else {each.path: each for each in self._manifest.files}
        for sha256 in known[file.name].chunks:
            self._check()
            data = self._chunks.read(sha256)
            if hashlib.sha256(data).hexdigest() != sha256:
                raise SourceUnreachable(self._uri, f"its part {sha256[:12]} came damaged")
            yield data

    def probe(self, file: SourceFile) -> None:
        """Read the first chunk of *file*."""
        next(self.pieces(file), None)


class _Chunks:
    """Chunks of one team, of this machine where the gateway runs on it."""

    def __init__(self, site: Site, team: str, uri: str, check: Check) -> None:
        self._site = site
        self._check = check
        self._team = team
        self._uri = uri
        self._gateway: httpx.Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._gateway is not None:
            self._gateway.close()

    def read(self, sha256: str) -> bytes:
        """One chunk, whatever it has. Raises `SourceUnreachable`."""
        found = self._site.upload_chunks.read(self._team, sha256)
        if found is not None:
            return found
        try:
            while (data := self._asked(sha256)) is None:
                self._check()
                self._site.clock.sleep(_PAUSE_S)
            return data
        except httpx.HTTPError as error:
            raise SourceUnreachable(self._uri, str(error) or type(error).__name__) from error
        except (InvalidInput, NoCredentials) as error:
            raise SourceUnreachable(self._uri, str(error)) from error

    def _asked(self, sha256: str) -> bytes | None:
        """What the gateway gives, which lets this machine in by its own token; None: ask later."""
        if self._gateway is None:
            address = local_address(self._site.settings)
            self._gateway = httpx.Client(
                base_url=f"{address.url}/v1",
                headers={"Authorization": f"Bearer {address.token}"},
                timeout=_ANSWER_S,
                verify=trust(address.url, address.certificate),
                trust_env=False,
            )
        path, params = f"/data/chunks/{sha256}", {"team": self._team}
        with self._gateway.stream("GET", path, params=params) as answer:
            if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
                return None
            answer.raise_for_status()
            pieces, size = [], 0
            for piece in answer.iter_bytes():
                size += len(piece)
                if size > DATA.chunk_bytes:
                    raise SourceUnreachable(self._uri, "the gateway answers more than a part has")
                pieces.append(piece)
            return b"".join(pieces)
