"""What ended runs left goes to the site's store, is checked there, and only then may be pruned."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.ledger.records import RunRecord
from headway.model.lease import Demand, Lease
from headway.model.run import Exit, ExitKind, Measurement
from headway.node import storing
from headway.node.prune import removals, remove, tidy
from headway.node.storing import forget_stored, store_ended
from headway.run.here import log_path
from headway.settings import Settings
from headway.site import LINE, Site
from headway.staging.store import Store
from headway.testing.clock import FakeClock
from headway.this_node import join_site
from headway.units import GIB
from tests.support.api import MEMBER, bearer, serving

JOB = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}


@pytest.fixture
def site(sqlite_tables: Path, tmp_path: Path) -> Iterator[Site]:
    ledger, home = tmp_path / "ledger.db", tmp_path / "home"
    ledger.write_bytes(sqlite_tables.read_bytes())
    home.mkdir()
    made = Site(
        Settings(
            home=home,
            ledger_url=SecretStr(f"sqlite:///{ledger}"),
            store_url=SecretStr(f"file://{tmp_path / 'store'}"),
            node="here",
            runtime="process",
        ),
        SystemClock(),
    )
    made.settings.state_dir.mkdir()
    join_site(made)
    yield made
    made.ledger.close()


def run(site: Site, number: int, *, ended: bool = True) -> RunRecord:
    """A run that has left a log and two outputs, one with an odd name."""
    run_id = str(UUID(int=number))
    site.ledger.runs.enqueue(
        run_id, JOB, name=f"run-{number}", owner="ada", team="vision", pool="gpu", priority=0,
        submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    lease = site.ledger.leases.admit(run_id, "here", Demand(GIB), reading=None, ttl_s=900.0)
    assert isinstance(lease, Lease)
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=900.0)
    path = log_path(site.settings, run_id, 1)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"epoch 1\n")
    outputs = site.settings.runs_dir / run_id / "outputs"
    (outputs / "deep").mkdir(parents=True)
    (outputs / "deep" / "model.pt").write_bytes(bytes([number]) * 5000)
    (outputs / os.fsdecode(b"\xff\n%")).write_bytes(b"odd")
    (outputs / "link").symlink_to("/etc/passwd")
    if ended:
        end(site, lease)
    return site.ledger.runs.get(run_id)


def end(site: Site, lease: Lease) -> None:
    site.ledger.runs.finish(lease.fence, Exit(ExitKind.OK, 0, "done"), Measurement())
    site.ledger.leases.release(lease.fence)


@pytest.fixture
def ask(site: Site) -> Iterator[Callable[..., httpx.Response]]:
    """A member of the team asks the gateway."""
    headers = bearer(site, "ada", "vision", MEMBER)
    with serving(site) as url, httpx.Client(base_url=f"{url}/v1", headers=headers) as client:
        yield client.get


def test_an_ended_run_is_read_from_the_store_after_its_folder_has_gone(site, ask) -> None:
    record = run(site, 1)
    assert store_ended(site) == 1
    assert store_ended(site) == 0  # once
    assert remove(site, record.run_id)
    assert not (site.settings.runs_dir / record.run_id).exists()
    listed = ask(f"/runs/{record.run_id}/outputs").json()
    assert [each["path"] for each in listed["files"]] == ["deep/model.pt", "\\xff\n%"]
    model, odd = listed["files"]
    got = ask(f"/runs/{record.run_id}/outputs/{model['href']}")
    assert got.content == bytes([1]) * 5000
    again = {"Range": "bytes=4990-", "If-Range": got.headers["etag"]}
    rest = ask(f"/runs/{record.run_id}/outputs/{model['href']}", headers=again)
    assert (rest.status_code, rest.content) == (206, bytes([1]) * 10)
    assert ask(f"/runs/{record.run_id}/outputs/{odd['href']}").content == b"odd"
    assert ask(f"/runs/{record.run_id}/outputs/nobody").status_code == 404
    log = ask(f"/runs/{record.run_id}/log", params={"from": 6, "follow": True})
    assert (log.headers["headway-from"], log.content) == ("6", b"1\n")


def test_what_is_not_in_the_store_is_not_pruned(site, monkeypatch) -> None:
    record = run(site, 1)
    monkeypatch.setattr(Store, "put", lambda *_: None)
    assert store_ended(site) == 0  # what was put is not there
    assert removals(site, keep_s=0.0, keep_bytes=0) == []
    assert not remove(site, record.run_id)
    monkeypatch.undo()
    store_ended(site)
    assert len(removals(site, keep_s=0.0, keep_bytes=0)) == 1
    assert remove(site, record.run_id)


def test_a_store_that_changes_a_byte_is_not_believed(site, monkeypatch) -> None:
    run(site, 1)
    put = Store.put
    monkeypatch.setattr(
        Store, "put", lambda self, key, pieces: put(self, key, [b"".join(pieces)[:-1] + b"?"])
    )
    assert store_ended(site) == 0


def test_one_that_fails_keeps_no_other_back_and_is_tried_again(site, monkeypatch, caplog) -> None:
    broken, whole = run(site, 1), run(site, 2)
    store_run = storing._store_run

    def killed(site: Site, store: Store, record: RunRecord) -> None:
        if record.run_id == broken.run_id:
            raise OSError("no such disk")
        store_run(site, store, record)

    monkeypatch.setattr(storing, "_store_run", killed)
    assert store_ended(site) == 1
    assert "no such disk" in caplog.text
    assert site.ledger.stored.get(whole.run_id) is not None
    assert site.ledger.stored.get(broken.run_id) is None
    monkeypatch.undo()
    assert store_ended(site) == 1


def test_a_run_that_goes_on_and_one_without_a_folder(site) -> None:
    going = run(site, 1, ended=False)
    assert store_ended(site) == 0
    gone = run(site, 2)
    (site.settings.runs_dir / gone.run_id).rename(site.settings.home / "aside")
    assert store_ended(site) == 1
    stored = site.ledger.stored.get(gone.run_id)
    assert stored is not None
    assert stored.key == ""
    assert site.ledger.stored.get(going.run_id) is None


def test_a_file_that_is_written_to_meanwhile_is_brought_again(site, monkeypatch) -> None:
    record = run(site, 1)
    path = site.settings.runs_dir / record.run_id / "outputs" / "deep" / "model.pt"
    pieces = Store.pieces

    def written(self: Store, key: str, start: int = 0) -> Iterator[bytes]:
        path.write_bytes(b"another")
        return pieces(self, key, start)

    monkeypatch.setattr(Store, "pieces", written)
    assert store_ended(site) == 0
    monkeypatch.undo()
    assert store_ended(site) == 1


def test_a_terabyte_of_nothing_is_not_sent_and_stays_here(site, caplog) -> None:
    record = run(site, 1)
    with (site.settings.runs_dir / record.run_id / "outputs" / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert store_ended(site) == 0
    assert "mostly empty" in caplog.text
    assert not remove(site, record.run_id)


def test_a_team_keeps_what_its_runs_left_for_its_own_time(site, tmp_path) -> None:
    record = run(site, 1)
    store_ended(site)
    site.ledger.settings.put(LINE, {"teams": {"speech": {"keep_days": 1e-9}}})
    assert (tidy(site), forget_stored(site)) == (0, 0)
    site.ledger.settings.put(LINE, {"teams": {"vision": {"keep_days": 1e-9}}})
    assert (tidy(site), forget_stored(site), forget_stored(site)) == (1, 1, 0)
    assert not (site.settings.runs_dir / record.run_id).exists()
    assert not (tmp_path / "store" / "vision" / record.run_id).exists()


def test_a_site_without_a_store_prunes_as_ever(site) -> None:
    alone = Site(site.settings.model_copy(update={"store_url": None}), FakeClock())
    run(site, 1)
    assert store_ended(alone) == 0
    assert len(removals(alone, keep_s=0.0, keep_bytes=None)) == 1
    alone.ledger.close()
