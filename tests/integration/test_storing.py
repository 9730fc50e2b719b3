"""What ended runs left goes to the site's store, is checked there, and only then may be pruned."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from click.testing import CliRunner, Result
from pydantic import SecretStr

from headway.cli.main import headway
from headway.clock import SystemClock
from headway.ledger.records import RunRecord
from headway.model.lease import Demand, Lease
from headway.model.run import Exit, ExitKind, Measurement
from headway.node import storing
from headway.node.expiry import tidy_store
from headway.node.prune import removals, remove, tidy
from headway.node.storing import store_ended
from headway.policy.settings import LINE
from headway.run.here import log_path
from headway.settings import Settings
from headway.site import Site
from headway.staging.store import Store
from headway.this_node import join_site
from headway.units import GIB
from headway.views.run_history import history_of
from headway.views.run_report import run_report
from tests.ports.clock import FakeClock
from tests.support.api import MEMBER, bearer, serving
from tests.support.leading import grant_in_term
from tests.support.on_ledger import enqueue
from tests.support.postgresql import new_ledger

JOB = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    home = tmp_path / "home"
    home.mkdir()
    made = Site(
        Settings(
            home=home,
            ledger_url=SecretStr(new_ledger()),
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
    enqueue(site.ledger, run_id, JOB, name=f"run-{number}", owner="ada", team="vision")
    begin(site, run_id, number)
    if ended:
        end(site, site.ledger.leases.of_run(run_id))
    return site.ledger.runs.get(run_id)


def begin(site: Site, run_id: str, number: int) -> None:
    """Start the run's next attempt here, which leaves files that are told by *number*."""
    attempt = site.ledger.runs.get(run_id).attempt
    here = site.settings.node
    lease = grant_in_term(site.ledger, run_id, here, Demand(GIB), ttl_s=900.0)
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=900.0)
    path = log_path(site.settings, run_id, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(f"epoch {attempt}\n".encode())
    outputs = site.settings.runs_dir / run_id / "outputs"
    (outputs / "deep").mkdir(parents=True, exist_ok=True)
    (outputs / "deep" / "model.pt").write_bytes(bytes([number]) * 5000)
    (outputs / os.fsdecode(b"\xff\n%")).write_bytes(b"odd")
    if not (outputs / "link").is_symlink():
        (outputs / "link").symlink_to("/etc/passwd")


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
    facts = [row for section in run_report(history_of(site, record)) for row in section.rows]
    assert any(what == "outputs" and said.startswith("in the site's store") for what, said in facts)
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
    store_part = storing._store_part

    def killed(site: Site, store: Store, record: RunRecord, attempt: int) -> None:
        if record.run_id == broken.run_id:
            raise OSError("no such disk")
        store_part(site, store, record, attempt)

    monkeypatch.setattr(storing, "_store_part", killed)
    assert store_ended(site) == 1
    assert "no such disk" in caplog.text
    assert site.ledger.stored.of_run(whole.run_id) != []
    assert site.ledger.stored.of_run(broken.run_id) == []
    monkeypatch.undo()
    assert store_ended(site) == 1


def test_a_run_that_goes_on_and_one_without_a_folder(site) -> None:
    going = run(site, 1, ended=False)
    assert store_ended(site) == 0
    gone = run(site, 2)
    (site.settings.runs_dir / gone.run_id).rename(site.settings.home / "aside")
    assert store_ended(site) == 1
    (stored,) = site.ledger.stored.of_run(gone.run_id)
    assert stored.key == ""
    assert site.ledger.stored.of_run(going.run_id) == []


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


def test_a_terabyte_of_nothing_is_refused_once_and_its_user_is_told(site, ask, caplog) -> None:
    record = run(site, 1)
    with (site.settings.runs_dir / record.run_id / "outputs" / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert (store_ended(site), store_ended(site)) == (1, 0)
    assert caplog.text.count("mostly holes") == 1
    (part,) = site.ledger.stored.of_run(record.run_id)
    assert "sparse (1.0 TiB) is mostly holes" in part.note
    report = [row for section in run_report(history_of(site, record)) for row in section.rows]
    assert ("warning", f"not in the store: {part.note}") in report
    listed = ask(f"/runs/{record.run_id}/outputs").json()
    assert [each["path"] for each in listed["not_stored"]] == ["sparse"]
    assert len(listed["files"]) == 2
    assert remove(site, record.run_id)  # after its time, as the note says


def test_more_files_than_are_listed_are_refused_once(site, monkeypatch) -> None:
    record = run(site, 1)
    monkeypatch.setattr("headway.run.outputs.MOST_FILES", 1)
    assert (store_ended(site), store_ended(site)) == (1, 0)
    (part,) = site.ledger.stored.of_run(record.run_id)
    assert (part.files, "only 100,000 files" in part.note) == (1, True)


def test_each_node_brings_its_part_of_a_run_that_was_tried_on_two(site, ask, tmp_path) -> None:
    other = Site(
        site.settings.model_copy(update={"home": tmp_path / "other", "node": "other"}),
        SystemClock(),
    )
    other.settings.state_dir.mkdir(parents=True)
    join_site(other)
    record = run(other, 1, ended=False)
    lease = other.ledger.leases.of_run(record.run_id)
    other.ledger.runs.requeue(lease.fence, Exit(ExitKind.INFRASTRUCTURE, None, "gone"))
    other.ledger.leases.release(lease.fence)
    begin(site, record.run_id, 2)
    assert (store_ended(other), store_ended(site)) == (0, 0)  # it goes on
    end(site, site.ledger.leases.of_run(record.run_id))
    assert (store_ended(other), store_ended(site)) == (1, 1)
    assert (remove(other, record.run_id), remove(site, record.run_id)) == (True, True)
    site.ledger.nodes.remove("other")  # its machine is gone as well
    where = f"/runs/{record.run_id}"
    (first, *_), (second, *_) = (
        ask(f"{where}/outputs", params=asked).json()["files"] for asked in ({"attempt": 1}, {})
    )
    assert ask(f"{where}/outputs/{first['href']}", params={"attempt": 1}).content == b"\1" * 5000
    assert ask(f"{where}/outputs/{second['href']}").content == b"\2" * 5000
    assert ask(f"{where}/outputs", params={"attempt": 3}).status_code == 404
    logs = [ask(f"{where}/log", params={"attempt": number}).content for number in (1, 2)]
    assert logs == [b"epoch 1\n", b"epoch 2\n"]
    # What the store keeps goes by the same settings, though no node speaks for the removed one.
    site.ledger.settings.put(LINE, {"teams": {"vision": {"keep_days": 1e-9}}})
    assert (tidy_store(site), list((tmp_path / "store").rglob("*.pt"))) == (1, [])
    other.ledger.close()


def test_what_is_retried_on_its_node_takes_the_place_of_what_was_stored(site, tmp_path) -> None:
    record = run(site, 1)
    store_ended(site)
    site.ledger.runs.retry(record.run_id, 1)
    begin(site, record.run_id, 2)
    end(site, site.ledger.leases.of_run(record.run_id))
    assert store_ended(site) == 1
    before, part = site.ledger.stored.of_run(record.run_id)
    assert (before.is_there, part.is_there) == (False, True)
    assert len(list((tmp_path / "store").rglob("model.pt"))) == 1


def test_headway_prune_by_hand_is_for_the_store_too(site, monkeypatch) -> None:
    record = run(site, 1)
    store_ended(site)
    monkeypatch.setattr("headway.cli.prune.this_site", lambda: site)

    def prune(*arguments: str) -> Result:
        return CliRunner().invoke(headway, ["prune", "--store", *arguments])

    assert 'headway-line/site: got "no limits"' in prune("--dry-run").stderr
    assert prune("--older-than", "1d").stdout == "nothing to remove\n"
    shown = prune("--keep-at-most", "1KiB", "--dry-run").stdout
    assert "1 finished runs, 4.9 KiB" in shown
    assert record.run_id[:8] in shown
    assert "1 of 1 removed" in prune("--keep-at-most", "1KiB", "--yes").stdout
    assert not site.ledger.stored.of_run(record.run_id)[0].is_there
    assert (site.settings.runs_dir / record.run_id).is_dir()
    monkeypatch.setattr("headway.node.storing.store_of", lambda _: None)
    assert "set HEADWAY_STORE_URL" in prune("--older-than", "0s").stderr


def test_a_team_keeps_what_its_runs_left_for_its_own_time(site, tmp_path) -> None:
    record = run(site, 1)
    store_ended(site)
    site.ledger.settings.put(LINE, {"teams": {"speech": {"keep_days": 1e-9}}})
    assert (tidy(site), tidy_store(site)) == (0, 0)
    site.ledger.settings.put(LINE, {"teams": {"vision": {"keep_days": 1e-9}}})
    assert (tidy(site), tidy_store(site), tidy_store(site)) == (1, 1, 0)
    assert not (site.settings.runs_dir / record.run_id).exists()
    assert list((tmp_path / "store" / "vision").iterdir()) == []


def test_a_site_without_a_store_prunes_as_ever(site) -> None:
    alone = Site(site.settings.model_copy(update={"store_url": None}), FakeClock())
    run(site, 1)
    assert store_ended(alone) == 0
    assert len(removals(alone, keep_s=0.0, keep_bytes=None)) == 1
    alone.ledger.close()
