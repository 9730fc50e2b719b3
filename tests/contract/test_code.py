"""Code that teams have sent."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlmodel import Session

from headway.errors import InvalidInput
from headway.ledger import Ledger, code
from headway.ledger.database import Database, open_engine
from headway.model.array import Array
from headway.model.code import CodeManifest
from headway.model.run import Exit, ExitKind, Measurement
from headway.model.sent_files import SentFile
from headway.policy.code_retention import MANIFEST_WEIGHT, ROW_BYTES
from headway.units import MIB
from tests.support.on_ledger import enqueue, granted, join

CANARY = b"canary: only the team that sent it may have it"
MOST = 10 * MIB


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def manifest(*parts: bytes, commit: str = "") -> CodeManifest:
    files = [SentFile(f"f{number}", len(p), (sha256(p),)) for number, p in enumerate(parts)]
    return CodeManifest.of(files, commit=commit)


def age(url: str, seconds: float) -> None:
    """Make all code so much older."""
    engine = open_engine(url)
    past = datetime.now(UTC) - timedelta(seconds=seconds)
    with engine.begin() as connection:
        for statement in ("UPDATE code SET used_at = :at", "UPDATE code_chunk SET seen_at = :at"):
            connection.execute(text(statement), {"at": past})
    engine.dispose()


def test_a_folder_is_kept_once_all_its_parts_are_there(ledger: Ledger) -> None:
    found = manifest(CANARY, b"two", commit="c0ffee")
    assert ledger.code.accept("vision", found) == sorted([sha256(CANARY), sha256(b"two")])
    assert ledger.code.get("vision", found.content_id) is None
    assert ledger.code.put("vision", [CANARY], most_bytes=MOST) == 1
    assert ledger.code.accept("vision", found) == [sha256(b"two")]
    assert ledger.code.put("vision", [b"two", CANARY], most_bytes=MOST) == 1
    assert ledger.code.accept("vision", found) == []
    assert ledger.code.use("vision", found.content_id)
    kept = ledger.code.get("vision", found.content_id)
    assert kept is not None
    assert (kept.commit_id, kept.files, kept.is_kept) == ("c0ffee", 2, True)
    assert ledger.code.manifest("vision", found.content_id) == found
    assert ledger.code.chunks("vision", [sha256(CANARY), "0" * 64]) == {sha256(CANARY): CANARY}


def test_a_hash_gives_nothing_to_another_team(ledger: Ledger) -> None:
    found = manifest(CANARY)
    ledger.code.put("vision", [CANARY], most_bytes=MOST)
    assert ledger.code.accept("vision", found) == []
    assert ledger.code.accept("speech", found) == [sha256(CANARY)]
    assert not ledger.code.use("speech", found.content_id)
    assert ledger.code.get("speech", found.content_id) is None
    assert ledger.code.manifest("speech", found.content_id) is None
    assert ledger.code.chunks("speech", [sha256(CANARY)]) == {}
    assert ledger.code.held_bytes("speech") == 0


def test_a_part_of_another_size_than_was_said_is_refused(ledger: Ledger) -> None:
    """Else a small part could stand for a large one where sizes are added up."""
    ledger.code.put("vision", [CANARY], most_bytes=MOST)
    wrong = CodeManifest.of([SentFile("a", len(CANARY) + 1, (sha256(CANARY),))])
    with pytest.raises(InvalidInput, match="has 46 B, not 47"):
        ledger.code.accept("vision", wrong)


def test_a_team_has_no_more_than_its_part(ledger: Ledger) -> None:
    most = 1000 + 2 * ROW_BYTES
    ledger.code.put("vision", [b"x" * 600], most_bytes=most)
    with pytest.raises(InvalidInput, match=r"may take 3.0 KiB, and takes 1.6 KiB"):
        ledger.code.put("vision", [b"y" * 600], most_bytes=most)
    assert ledger.code.put("vision", [b"x" * 600], most_bytes=most) == 0
    assert ledger.code.put("speech", [b"y" * 600], most_bytes=most) == 1


def test_rows_and_lists_of_files_count_however_little_is_in_them(ledger: Ledger) -> None:
    assert ledger.code.put("vision", [b"1", b"2", b"3"], most_bytes=4 * ROW_BYTES) == 3
    with pytest.raises(InvalidInput):
        ledger.code.put("vision", [b"4", b"5"], most_bytes=4 * ROW_BYTES)
    empty = CodeManifest.of([SentFile(f"f{n}", 0, ()) for n in range(100)])
    most = ROW_BYTES + MANIFEST_WEIGHT * len(empty.text)
    assert ledger.code.accept("speech", empty, most_bytes=most) == []
    assert ledger.code.held_bytes("speech") == most
    assert ledger.code.teams() == ["speech", "vision"]
    other = CodeManifest.of([SentFile("other", 0, ())])
    with pytest.raises(InvalidInput, match="what is unused goes first"):
        ledger.code.accept("speech", other, most_bytes=most)
    assert ledger.code.accept("speech", empty, most_bytes=most) == []
    kept = ledger.code.kept("speech")
    assert [each.manifest_bytes for each in kept] == [len(empty.text)]


def test_very_many_small_chunks_hold_no_transaction_for_long(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, transaction = [], Database.transaction

    def noted(self: Database) -> AbstractContextManager[Session]:
        begun.append(self)
        return transaction(self)

    monkeypatch.setattr(Database, "transaction", noted)
    parts = [str(number).encode() for number in range(600)]
    assert ledger.code.put("vision", [*parts, *parts], most_bytes=MOST) == 600
    assert len(begun) == 3
    assert ledger.code.put("vision", parts, most_bytes=MOST) == 0


def test_who_sends_the_same_again_writes_nothing(ledger: Ledger, ledger_url: str) -> None:
    found = manifest(CANARY)
    ledger.code.put("vision", [CANARY], most_bytes=MOST)
    ledger.code.accept("vision", found)
    age(ledger_url, 60.0)
    before = ledger.code.get("vision", found.content_id)
    assert ledger.code.accept("vision", found) == []
    assert ledger.code.get("vision", found.content_id) == before
    age(ledger_url, 3600.0)
    assert ledger.code.accept("vision", found) == []
    after = ledger.code.get("vision", found.content_id)
    assert before is not None
    assert after is not None
    assert after.used_at > before.used_at


def test_of_folders_that_were_let_go_of_the_newest_stay_known(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "_FORGOTTEN", 2)
    ids = []
    for number in range(4):
        found = CodeManifest.of([SentFile(f"f{number}", 0, ())])
        ledger.code.accept("vision", found)
        ids.append(found.content_id)
    assert [ledger.code.let_go(each) for each in ledger.code.kept("vision")[:3]] == [True] * 3
    assert ledger.code.forget("vision") == 1
    assert [ledger.code.get("vision", each) is not None for each in ids] == [False, *[True] * 3]


def test_who_sends_the_same_at_once_is_told_so(ledger: Ledger) -> None:
    parts = [bytes([number]) * 100 for number in range(20)]

    def send(_: int) -> int:
        return ledger.code.put("vision", parts, most_bytes=MOST)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(8)))
    assert ledger.code.held_bytes("vision") == 2000 + 20 * ROW_BYTES


def test_what_a_run_needs_says_so_until_the_run_has_ended(ledger: Ledger) -> None:
    join(ledger)
    needed, other = manifest(b"needed"), manifest(b"other")
    ledger.code.put("vision", [b"needed", b"other"], most_bytes=MOST)
    for each in (needed, other):
        ledger.code.accept("vision", each)
    enqueue(ledger, "run", {"code": needed.content_id}, team="vision")

    def seen() -> dict[str, bool]:
        return {each.code_id: each.is_needed for each in ledger.code.kept("vision")}

    assert seen() == {needed.content_id: True, other.content_id: False}
    lease = granted(ledger, "run")
    assert seen()[needed.content_id]
    ledger.runs.finish(lease.fence, Exit(ExitKind.OK, 0, ""), Measurement())
    assert not seen()[needed.content_id]


def test_what_the_next_member_of_an_array_needs_says_so(ledger: Ledger) -> None:
    found = manifest(b"needed")
    ledger.code.put("vision", [b"needed"], most_bytes=MOST)
    ledger.code.accept("vision", found)
    added = ledger.arrays.add(
        {"code": found.content_id}, Array({"lr": (1, 2)}), name="many", owner="ada", team="vision",
        pool="gpu", queue="default", key=None, submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    assert [each.is_needed for each in ledger.code.kept("vision")] == [True]
    ledger.arrays.cancel(added.array_id, "by ada")
    assert [each.is_needed for each in ledger.code.kept("vision")] == [False]


def test_what_is_let_go_of_leaves_what_others_share_and_where_it_came_from(
    ledger: Ledger, ledger_url: str
) -> None:
    old, new = manifest(b"shared", b"old", commit="abc"), manifest(b"shared", b"new")
    ledger.code.put("vision", [b"shared", b"old", b"new"], most_bytes=MOST)
    for each in (old, new):
        ledger.code.accept("vision", each)
    (kept,) = [each for each in ledger.code.kept("vision") if each.code_id == old.content_id]
    assert ledger.code.let_go(kept)
    assert ledger.code.drop_chunks("vision") == 0  # somebody may be sending it again
    age(ledger_url, 2 * 86400)
    assert ledger.code.drop_chunks("vision") == 1
    wanted = [sha256(each) for each in (b"shared", b"old", b"new")]
    assert sorted(ledger.code.chunks("vision", wanted).values()) == [b"new", b"shared"]
    seen = ledger.code.get("vision", old.content_id)
    assert seen is not None
    assert (seen.commit_id, seen.is_kept) == ("abc", False)
    assert not ledger.code.use("vision", old.content_id)


def test_what_was_used_meanwhile_is_not_let_go_of(ledger: Ledger, ledger_url: str) -> None:
    found = manifest(b"a")
    ledger.code.put("vision", [b"a"], most_bytes=MOST)
    ledger.code.accept("vision", found)
    age(ledger_url, 90 * 86400)
    (kept,) = ledger.code.kept("vision")
    assert ledger.code.use("vision", found.content_id)
    assert not ledger.code.let_go(kept)
    # A part that somebody was told of stays, whatever was seen of it before.
    assert ledger.code.accept("vision", found) == []
    assert ledger.code.drop_chunks("vision") == 0


def test_a_part_that_is_promised_while_others_are_removed_stays(
    ledger: Ledger, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody is told that it need not be sent, after it was found to be unused."""
    ledger.code.put("vision", [b"a"], most_bytes=MOST)
    age(ledger_url, 2 * 86400)
    transaction = Database.transaction

    def promised_first(database: Database) -> AbstractContextManager[Session]:
        monkeypatch.undo()
        assert ledger.code.accept("vision", manifest(b"a")) == []
        return transaction(database)

    monkeypatch.setattr(Database, "transaction", promised_first)
    ledger.code.drop_chunks("vision")
    assert ledger.code.chunks("vision", [sha256(b"a")]) == {sha256(b"a"): b"a"}
