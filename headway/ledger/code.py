"""The code that runs bring along: each team's own, whatever hashes another one has."""

import hashlib
from collections.abc import Collection, Iterable
from datetime import timedelta

from sqlalchemy import delete, func, update
from sqlmodel import Session, col, select

from headway.errors import InvalidInput
from headway.ledger.array_tables import ArrayRow
from headway.ledger.code_tables import CodeChunkRow, CodeRow
from headway.ledger.codec import record
from headway.ledger.columns import insert_new, now
from headway.ledger.database import Repository
from headway.ledger.tables import RunRow
from headway.model.code import CodeManifest, chunks_named
from headway.model.kept_code import KeptCode
from headway.model.run import RunState
from headway.units import DAY_S, format_size

LENT_S = DAY_S
"""So long a chunk stays that no folder has any more: somebody may be sending one that has it."""
_PAGE = 500


class Code(Repository):
    """The code tables."""

    def put(self, team: str, chunks: Iterable[bytes], *, most_bytes: int) -> int:
        """Keep *chunks* under the SHA-256 that they have; how many were new.

        Raises:
            InvalidInput: With them the team would have more than *most_bytes*.
        """
        found = {hashlib.sha256(each).hexdigest(): each for each in chunks}
        with self._database.transaction() as session:
            new = found.keys() - _sizes(session, team, found)
            added = sum(len(found[each]) for each in new)
            held = _held_bytes(session, team)
            if new and held + added > most_bytes:
                allowed = (
                    f"code of team {team} may take {format_size(most_bytes)}, and takes "
                    f"{format_size(held)}; what is unused goes first, so try again later, or "
                    "leave large files out"
                )
                raise InvalidInput("workdir", format_size(added), allowed)
            seen_at = now(session)
            for sha256 in sorted(new):  # all insert in one order
                row = CodeChunkRow(
                    team=team,
                    sha256=sha256,
                    size_bytes=len(found[sha256]),
                    content=found[sha256],
                    seen_at=seen_at,
                )
                insert_new(session, row)
        return len(new)

    def accept(self, team: str, manifest: CodeManifest) -> list[str]:
        """Keep a folder if all its chunks are here; else say which are not, and keep nothing.

        Raises:
            InvalidInput: A chunk is of another size than the manifest says.
        """
        with self._database.transaction() as session:
            sizes = _sizes(session, team, manifest.chunks)
            for sha256, size in sizes.items():
                if size != manifest.chunks[sha256]:
                    allowed = f"chunk {sha256} has {size} B, not {manifest.chunks[sha256]}"
                    raise InvalidInput("workdir", manifest.code_id, allowed)
            missing = sorted(manifest.chunks.keys() - sizes)
            if not missing:
                row = CodeRow(
                    team=team,
                    code_id=manifest.code_id,
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
        """A run of *team* is about to be handed in with it; False where the team has it not."""
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
            return None if row is None else _kept(row)

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
            return list(session.exec(select(CodeChunkRow.team).distinct()))

    def held_bytes(self, team: str) -> int:
        """What the chunks of a team take."""
        with self._database.reading() as session:
            return _held_bytes(session, team)

    def kept(self, team: str) -> list[KeptCode]:
        """All that a team has sent and that was not let go of, the one unused longest first.

        What a run needs that has not ended, or an array's next member, says so.
        """
        with self._database.reading() as session:
            runs = select(RunRow.job).where(RunRow.team == team, RunRow.state != RunState.ENDED)
            arrays = select(ArrayRow.job).where(
                ArrayRow.team == team,
                col(ArrayRow.cancelled_at).is_(None),
                col(ArrayRow.created) < col(ArrayRow.size),
            )
            jobs = [*session.exec(runs), *session.exec(arrays)]
            needed = {job.get("code") for job in jobs}
            rows = select(CodeRow).where(CodeRow.team == team, col(CodeRow.manifest).is_not(None))
            found = session.exec(rows.order_by(col(CodeRow.used_at)))
            return [_kept(row, is_needed=row.code_id in needed) for row in found]

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
        with self._database.reading() as session:
            before = now(session) - timedelta(seconds=LENT_S)
            chunks = select(CodeChunkRow.sha256).where(
                CodeChunkRow.team == team, CodeChunkRow.seen_at < before
            )
            unseen = set(session.exec(chunks))
            kept = select(CodeRow.manifest).where(
                CodeRow.team == team, col(CodeRow.manifest).is_not(None)
            )
            for text in filter(None, session.exec(kept) if unseen else ()):
                unseen -= chunks_named(text)
        old = sorted(unseen)
        for start in range(0, len(old), _PAGE):
            with self._database.transaction() as session:
                page = old[start : start + _PAGE]
                session.exec(
                    delete(CodeChunkRow).where(
                        col(CodeChunkRow.team) == team,
                        col(CodeChunkRow.sha256).in_(page),
                        col(CodeChunkRow.seen_at) < before,
                    )
                )
        return len(old)


def _sizes(session: Session, team: str, sha256s: Collection[str]) -> dict[str, int]:
    """Size of each of *sha256s* that the team has; they stay for a while from now on."""
    asked, found = sorted(sha256s), dict[str, int]()
    for start in range(0, len(asked), _PAGE):
        page = col(CodeChunkRow.sha256).in_(asked[start : start + _PAGE])
        query = select(CodeChunkRow.sha256, CodeChunkRow.size_bytes)
        found |= dict(session.exec(query.where(CodeChunkRow.team == team, page)).all())
        moment = now(session)
        old = col(CodeChunkRow.seen_at) < moment - timedelta(seconds=LENT_S / 2)
        mine = col(CodeChunkRow.team) == team
        session.exec(update(CodeChunkRow).where(mine, page, old).values(seen_at=moment))
    return found


def _held_bytes(session: Session, team: str) -> int:
    total = select(func.sum(CodeChunkRow.size_bytes)).where(CodeChunkRow.team == team)
    return int(session.exec(total).one() or 0)


def _kept(row: CodeRow, *, is_needed: bool = False) -> KeptCode:
    return record(KeptCode, row, is_kept=row.manifest is not None, is_needed=is_needed)
