"""The data sets that members have put: names, what they consist of, and who needs them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import defer
from sqlmodel import Session, func, select

from headway.ledger.array_rows import jobs_to_come
from headway.ledger.codec import record
from headway.ledger.columns import insert_new, now
from headway.ledger.database import Repository
from headway.ledger.upload_table import UploadRow
from headway.model.address import upload_name
from headway.model.sent_files import chunks_named
from headway.model.upload import Upload, UploadManifest

UPLOAD_ROW_BYTES = 4096
"""What a name counts beside its manifest."""
_UNREAD = defer(UploadRow.manifest)  # type: ignore[arg-type]  # is a column


class Uploads(Repository):
    """The upload table. Each team has names of its own."""

    def put(self, team: str, name: str, owner: str, manifest: UploadManifest) -> Upload:
        """Give *manifest* this *name*, where it is free; what has it then."""
        with self._database.transaction() as session:
            at = now(session)
            row = UploadRow(
                team=team,
                name=name,
                content_id=manifest.content_id,
                owner=owner,
                is_directory=manifest.is_directory,
                files=len(manifest.files),
                size_bytes=manifest.size_bytes,
                manifest=manifest.text,
                put_at=at,
                used_at=at,
            )
            insert_new(session, row)
            return record(Upload, session.get_one(UploadRow, (team, name)))

    def get(self, team: str, name: str) -> Upload | None:
        """What has this name; None where nothing has."""
        with self._database.reading() as session:
            row = session.get(UploadRow, (team, name), options=[_UNREAD])
            return None if row is None else record(Upload, row)

    def manifest(self, team: str, name: str) -> UploadManifest | None:
        """What it consists of; None where nothing has this name."""
        with self._database.reading() as session:
            row = session.get(UploadRow, (team, name))
            text = None if row is None else row.manifest
        return None if text is None else UploadManifest.read(text)

    def all(self, team: str = "") -> list[Upload]:
        """Those of a team, or of all where it is empty, by name."""
        rows = select(UploadRow).options(_UNREAD).order_by("team", "name")
        return self._records(Upload, rows.where(UploadRow.team == team) if team else rows)

    def use(self, team: str, name: str) -> bool:
        """A run of *team* is about to be submitted with it; False where it has no such one."""
        with self._database.transaction() as session:
            row = session.get(UploadRow, (team, name), with_for_update=True)
            if row is None:
                return False
            row.used_at = now(session)
            return True

    def needed_by(self, team: str, name: str) -> list[str]:
        """Names of the runs and arrays of the team that have not ended and read it."""
        with self._database.reading() as session:
            return _needed_by(session, team, name)

    def remove(self, team: str, name: str) -> Sequence[str] | None:
        """Forget it; the chunks that no other one of the team has. None while a run needs it."""
        with self._database.transaction() as session:
            row = session.get(UploadRow, (team, name), with_for_update=True)
            if row is None:
                return []
            if _needed_by(session, team, name):
                return None
            left = chunks_named(row.manifest)
            session.delete(row)
            session.flush()
            return sorted(left - _named(session, team))

    def manifest_bytes(self, team: str) -> int:
        """What the rows and manifests of the team's data sets take."""
        total = select(func.count(), func.sum(func.length(UploadRow.manifest)))
        with self._database.reading() as session:
            rows, size = session.exec(total.where(UploadRow.team == team)).one()
            return UPLOAD_ROW_BYTES * rows + int(size or 0)

    def chunks_named(self, team: str) -> set[str]:
        """The chunks that the team's data sets are made of."""
        with self._database.reading(one_moment=True) as session:
            return _named(session, team)


def _named(session: Session, team: str) -> set[str]:
    texts = select(UploadRow.manifest).where(UploadRow.team == team)
    return set().union(*map(chunks_named, session.exec(texts.execution_options(yield_per=1))))


def _needed_by(session: Session, team: str, name: str) -> list[str]:
    jobs = jobs_to_come(session, team)
    return sorted({called for called, job in jobs if name in _uploads_of(job)})


def _uploads_of(job: Mapping[str, Any]) -> set[str | None]:
    data = [job.get("dataset"), *(job.get("datasets") or {}).values()]
    return {upload_name(str(each.get("uri"))) for each in data if isinstance(each, Mapping)}
