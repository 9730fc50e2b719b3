"""The code that runs bring along: each team's own, whatever hashes another one has."""

import hashlib
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from sqlalchemy import delete, func, update
from sqlalchemy.orm import defer
from sqlmodel import Session, col, select

from headway.errors import InvalidInput
from headway.ledger.array_rows import jobs_to_come
from headway.ledger.code_tables import CodeChunkRow, CodeRow
from headway.ledger.codec import record
from headway.ledger.columns import among, insert_all_new, now
from headway.ledger.database import Repository
from headway.model.code import CodeManifest
from headway.model.kept_code import KeptCode
from headway.model.sent_files import chunks_named
from headway.policy.code_retention import MANIFEST_WEIGHT, ROW_BYTES, TEAM_BYTES
from headway.units import DAY_S, format_size

LENT_S = DAY_S
"""So long a chunk stays that no folder has any more: somebody may be sending one that has it."""
_PAGE = 500
_BATCH = 256
"""Chunks that one transaction keeps: others wait for no longer than that takes."""
_FRESH_S = 1800.0
"""Who sends a folder that was used so lately writes nothing: it is not let go of soon."""
_FORGOTTEN = 1000
"""Folders of a team of which commit and diff stay known once their content is let go of."""


class Code(Repository):
    """The code tables."""

    def put(self, team: str, chunks: Iterable[bytes], *, most_bytes: int) -> int:
        """Keep *chunks* under the SHA-256 that they have; how many were new.

        Raises:
            InvalidInput: With them the team would have more than *most_bytes*.
        """
        found = {hashlib.sha256(each).hexdigest(): each for each in chunks}
        asked, count = sorted(found), 0  # all insert in one order
        for start in range(0, len(asked), _BATCH):
            page = asked[start : start + _BATCH]
            with self._database.transaction() as session:
                new = sorted(set(page) - _sizes(session, team, page).keys())
                if new:
                    added = sum(len(found[each]) + ROW_BYTES for each in new)
                    _check_room(session, team, added, most_bytes)
                    at = now(session)
                    insert_all_new(session, [_chunk(team, found[e], e, at) for e in new])
            count += len(new)
        return count

    def accept(
        self, team: str, manifest: CodeManifest, *, most_bytes: int = TEAM_BYTES
    ) -> list[str]:
        """Keep a folder if all its chunks are here; else say which are not, and keep nothing.

        Nothing is written where it was kept lately.

        Raises:
            InvalidInput: A chunk is of another size than the manifest says, or with it the team
                would have more than *most_bytes*.
        """
        with self._database.transaction() as session:
            mine = (col(CodeRow.team) == team, col(CodeRow.code_id) == manifest.content_id)
            kept = select(CodeRow.used_at).where(*mine, col(CodeRow.manifest).is_not(None))
            used_at = session.exec(kept).first()
            if used_at is not None:
                if now(session) - used_at > timedelta(seconds=_FRESH_S):
                    session.exec(update(CodeRow).where(*mine).values(used_at=now(session)))
                return []
            sizes = _sizes(session, team, manifest.chunks)
            for sha256, size in sizes.items():
                if size != manifest.chunks[sha256]:
                    allowed = f"chunk {sha256} has {size} B, not {manifest.chunks[sha256]}"
                    raise InvalidInput("workdir", manifest.content_id, allowed)
            missing = sorted(manifest.chunks.keys() - sizes)
            if not missing:
                added = ROW_BYTES + len(manifest.diff) + MANIFEST_WEIGHT * len(manifest.text)
                _check_room(session, team, added, most_bytes)
                row = CodeRow(
                    team=team,
                    code_id=manifest.content_id,
                    commit_id=manifest.commit,
                    diff=manifest.diff,
                    files=len(manifest.files),
                    size_bytes=manifest.size_bytes,
                    manifest=manifest.text,
                    used_at=now(session),
                )
                session.merge(row)
            return missing

    def use(self, team: str, code_id: str) -> bool:
        """A run of *team* is about to be submitted with it; False where the team has it not."""
        with self._database.transaction() as session:
            row = session.get(CodeRow, (team, code_id), with_for_update=True)
            if row is None or row.manifest is None:
                return False
            row.used_at = now(session)
            return True

    def get(self, team: str, code_id: str) -> KeptCode | None:
        """What is known of it; None where the team never sent it whole."""
        with self._database.reading() as session:
            row = session.get(CodeRow, (team, code_id))
            if row is None:
                return None
            text = row.manifest
            is_kept, size = text is not None, len(text or b"")
            return record(KeptCode, row, is_kept=is_kept, manifest_bytes=size, is_needed=False)

    def manifest(self, team: str, code_id: str) -> CodeManifest | None:
        """Of what files it is; None where the team has it not, or not any more."""
        with self._database.reading() as session:
            row = session.get(CodeRow, (team, code_id))
            text = None if row is None else row.manifest
        return None if text is None else CodeManifest.read(text)

    def chunks(self, team: str, sha256s: Collection[str]) -> dict[str, bytes]:
        """Those of *sha256s* that the team has sent."""
        with self._database.reading() as session:
            query = select(CodeChunkRow).where(
                CodeChunkRow.team == team, col(CodeChunkRow.sha256).in_(sha256s)
            )
            return {row.sha256: row.content for row in session.exec(query)}

    def teams(self) -> list[str]:
        """Those that have sent any."""
        with self._database.reading() as session:
            chunks, codes = select(CodeChunkRow.team), select(CodeRow.team)
            return sorted({*session.exec(chunks.distinct()), *session.exec(codes.distinct())})

    def held_bytes(self, team: str) -> int:
        """What a team's chunks and folders take, as it is counted against what it may."""
        with self._database.reading() as session:
            return _held_bytes(session, team)

    def kept(self, team: str) -> list[KeptCode]:
        """All that a team has sent and that was not let go of, the one unused longest first.

        What a run needs that has not ended, or an array's next member, says so.
        """
        with self._database.reading() as session:
            needed = {job.get("code") for _, job in jobs_to_come(session, team)}
            rows = select(CodeRow, func.length(CodeRow.manifest)).where(
                CodeRow.team == team, col(CodeRow.manifest).is_not(None)
            )
            rows = rows.options(defer(CodeRow.manifest)).order_by(col(CodeRow.used_at))  # type: ignore[arg-type]  # is a column
            return [
                record(
                    KeptCode,
                    row,
                    is_kept=True,
                    manifest_bytes=size,
                    is_needed=row.code_id in needed,
                )
                for row, size in session.exec(rows)
            ]

    def let_go(self, code: KeptCode) -> bool:
        """Forget what files it is of, unless it was used since *code* was read."""
        with self._database.transaction() as session:
            row = session.get(CodeRow, (code.team, code.code_id), with_for_update=True)
            if row is None or row.used_at != code.used_at:
                return False
            row.manifest = None
            return True

    def drop_chunks(self, team: str) -> int:
        """Remove chunks that no kept folder of the team has; how many.

        Those that somebody was told of lately stay: they may be part of the next one.
        """
        with self._database.reading(one_moment=True) as session:
            before = now(session) - timedelta(seconds=LENT_S)
            chunks = select(CodeChunkRow.sha256).where(
                CodeChunkRow.team == team, CodeChunkRow.seen_at < before
            )
            unseen = set(session.exec(chunks))
            kept = select(CodeRow.manifest).where(
                CodeRow.team == team, col(CodeRow.manifest).is_not(None)
            )
            each_alone = kept.execution_options(yield_per=1)
            for text in filter(None, session.exec(each_alone) if unseen else ()):
                unseen -= chunks_named(text)
        old = sorted(unseen)
        for start in range(0, len(old), _PAGE):
            with self._database.transaction() as session:
                page = old[start : start + _PAGE]
                session.exec(
                    delete(CodeChunkRow).where(
                        col(CodeChunkRow.team) == team,
                        among(CodeChunkRow.sha256, page),
                        col(CodeChunkRow.seen_at) < before,
                    )
                )
        return len(old)

    def forget(self, team: str) -> int:
        """Remove what is known of folders that were let go of, but for the newest; how many."""
        with self._database.transaction() as session:
            gone = select(CodeRow.code_id).where(
                CodeRow.team == team, col(CodeRow.manifest).is_(None)
            )
            old = session.exec(gone.order_by(col(CodeRow.used_at).desc()).offset(_FORGOTTEN)).all()
            for_good = col(CodeRow.team) == team, col(CodeRow.manifest).is_(None)
            session.exec(delete(CodeRow).where(*for_good, among(CodeRow.code_id, old)))
            return len(old)


def _chunk(team: str, data: bytes, sha256: str, at: datetime) -> CodeChunkRow:
    return CodeChunkRow(team=team, sha256=sha256, size_bytes=len(data), content=data, seen_at=at)


def _check_room(session: Session, team: str, added: int, most_bytes: int) -> None:
    held = _held_bytes(session, team)
    if held + added > most_bytes:
        allowed = (
            f"code of team {team} may take {format_size(most_bytes)}, and takes "
            f"{format_size(held)}; what is unused goes first, so try again later, or "
            "leave large files out"
        )
        raise InvalidInput("workdir", format_size(added), allowed)


def _sizes(session: Session, team: str, sha256s: Collection[str]) -> dict[str, int]:
    """Size of each of *sha256s* that the team has; they stay for a while from now on."""
    asked = col(CodeChunkRow.team) == team, among(CodeChunkRow.sha256, sha256s)
    found = session.exec(select(CodeChunkRow.sha256, CodeChunkRow.size_bytes).where(*asked)).all()
    moment = now(session)
    old = col(CodeChunkRow.seen_at) < moment - timedelta(seconds=LENT_S / 2)
    session.exec(update(CodeChunkRow).where(*asked, old).values(seen_at=moment))
    return dict(found)


def _held_bytes(session: Session, team: str) -> int:
    """Content, rows and lists of files."""
    chunks = select(func.count(), func.sum(CodeChunkRow.size_bytes))
    lists, diffs = func.sum(func.length(CodeRow.manifest)), func.sum(func.length(CodeRow.diff))
    codes = select(func.count(), lists, diffs)
    chunk_rows, content = session.exec(chunks.where(CodeChunkRow.team == team)).one()
    code_rows, listed, differ = session.exec(codes.where(CodeRow.team == team)).one()
    rows = ROW_BYTES * (chunk_rows + code_rows)
    return rows + int(content or 0) + MANIFEST_WEIGHT * int(listed or 0) + int(differ or 0)
