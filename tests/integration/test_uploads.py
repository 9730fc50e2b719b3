"""Data that members bring: put, resumed, listed, removed, and read by another node."""

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.client import Client
from headway.clock import SystemClock
from headway.credentials import Address, GatewayPlace, note_gateway
from headway.errors import GatewayRefused, InvalidInput
from headway.gateway import uploads
from headway.gateway.door import Buckets
from headway.gateway.errors import TooManyRequests
from headway.gateway.tokens import have_local_token
from headway.ledger.uploads import UPLOAD_ROW_BYTES
from headway.model.access import Scope
from headway.model.job_parts import Dataset
from headway.model.lease import Demand, Lease
from headway.model.node import Capacity, Node
from headway.model.run import Exit, ExitKind, Measurement
from headway.model.sent_files import SentFile
from headway.model.upload import DATA, UploadManifest
from headway.node.expiry import remove_upload, tidy_uploads, unused_uploads
from headway.policy.rate_limit import Rate
from headway.run.uploads import UploadReader
from headway.settings import Settings
from headway.site import Site
from headway.staging.errors import SourceMissing, SourceUnreachable
from headway.staging.upload_chunks import FILE_BYTES, UploadChunks
from headway.units import GIB, KIB, format_size
from tests.integration.test_gateway import JOB, FakePrefect
from tests.support.api import MEMBER, bearer, serving, site_in
from tests.support.leading import admit_in_term

CANARY = b"canary: the data of team vision"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def manifest(path: str = "set.csv", data: bytes = CANARY, **more: Any) -> UploadManifest:
    file = SentFile(path, more.get("size", len(data)), (more.get("chunk", sha256(data)),))
    return UploadManifest((file,), more.get("is_directory", False))


def folder_of(*paths: str) -> UploadManifest:
    return UploadManifest(is_directory=True, files=tuple(manifest(p).files[0] for p in paths))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = site_in(tmp_path)
    node = Node("left", "gpu", Capacity(8.0, 64 * GIB))
    made.ledger.nodes.register(node, boot_id="boot", worker_token="t")
    yield made
    made.ledger.close()


@pytest.fixture
def url(site: Site) -> Iterator[str]:
    with serving(site, FakePrefect()) as address:
        yield address


def client_of(site: Site, url: str, user: str, team: str) -> Client:
    token = bearer(site, user, team, MEMBER)["Authorization"].split()[1]
    return Client(Address(url, token))


@pytest.fixture
def ada(site: Site, url: str) -> Iterator[Client]:
    with client_of(site, url, "ada", "vision") as opened:
        yield opened


@pytest.fixture
def bob(site: Site, url: str) -> Iterator[Client]:
    with client_of(site, url, "bob", "speech") as opened:
        yield opened


@pytest.fixture
def raw(site: Site, url: str) -> Iterator[httpx.Client]:
    headers = bearer(site, "ada", "vision", MEMBER)
    with httpx.Client(base_url=f"{url}/v1", headers=headers) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "laptop" / "birds"
    (place / "train").mkdir(parents=True)
    (place / "labels.csv").write_bytes(CANARY)
    (place / "train" / "empty").touch()
    (place / "train" / "1.bin").write_bytes(os.urandom(DATA.chunk_bytes + 7))
    return place


def other_node(site: Site, url: str, home: Path, ledger_url: str = "") -> Site:
    """A node of the same site, which has joined: another home, and a token of its own."""
    home.mkdir()
    ledger_url = ledger_url or site.settings.database_url
    made = Site(Settings(home=home, node="right", ledger_url=ledger_url), SystemClock())
    note_gateway(made.settings, GatewayPlace(url))
    have_local_token(made.settings, made.ledger)
    return made


def asked_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway puts off the first question that it is asked from now on."""
    take, told = Buckets.take, []

    def once(self: Buckets, who: str) -> None:
        if not told:
            told.append(who)
            raise TooManyRequests(1.0)
        take(self, who)

    monkeypatch.setattr(Buckets, "take", once)


def staged(site: Site, team: str, name: str) -> Path:
    cache = site.cache_reading(UploadReader(site, team, ""))
    said = Dataset(uri=f"headway://{name}")
    return cache.stage(said, "00000000-0000-4000-8000-000000000001", progress=lambda *_: None).path


def test_what_is_put_is_read_by_another_node_through_the_gateway(
    site: Site,
    ada: Client,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, int, int]] = []
    kept = ada.put_data(folder, told=lambda *far: seen.append(far))
    assert (kept["name"], kept["uri"], kept["files"]) == ("birds", "headway://birds", 3)
    assert {what for what, _, _ in seen} == {"reading", "sending"}
    assert seen[-1][1] == seen[-1][2] == kept["size_bytes"]
    made = ada.submit(JOB | {"dataset": {"uri": "headway://birds"}})
    assert site.ledger.runs.get(made["run_id"]).job["dataset"]["size"] == f"{kept['size_bytes']}B"
    right = other_node(site, ada.url, tmp_path / "right")
    asked_too_often(monkeypatch)
    copy = staged(right, "vision", "birds")
    for each in ("labels.csv", "train/1.bin", "train/empty"):
        assert (copy / each).read_bytes() == (folder / each).read_bytes()
    assert not right.settings.uploads_dir.exists()
    # A member's token does not open what the nodes are given.
    right.settings.token_file.write_text(bearer(site, "eve", "vision", MEMBER)["Authorization"][7:])
    ada.put_data(folder / "labels.csv", "labels")
    with pytest.raises(SourceUnreachable, match="403"):
        staged(right, "vision", "labels")


def test_a_node_with_a_login_of_its_own_reads_the_data_of_its_runs_alone(
    site: Site, ada: Client, bob: Client, folder: Path, tmp_path: Path
) -> None:
    ada.put_data(folder)
    bob.put_data(folder / "labels.csv", "labels")
    right = Node("right", "gpu", Capacity(8.0, 64 * GIB))
    site.ledger.nodes.register(right, boot_id="boot", worker_token="t")
    node = other_node(
        site, ada.url, tmp_path / "right", site.ledger.node_logins.add("right", actor="me")
    )
    with pytest.raises(SourceMissing):
        staged(node, "vision", "birds")  # no run of that team is there
    run_id = ada.submit(JOB | {"dataset": {"uri": "headway://birds"}})["run_id"]
    assert isinstance(admit_in_term(site.ledger, run_id, "right", Demand(GIB)), Lease)
    assert (staged(node, "vision", "birds") / "train/1.bin").exists()
    with pytest.raises(SourceMissing):
        staged(node, "speech", "labels")
    token = {"Authorization": f"Bearer {node.settings.token_file.read_text().strip()}"}
    known = site.ledger.uploads.manifest("speech", "labels")
    assert known is not None
    for path in (f"data/chunks/{known.files[0].chunks[0]}?team=speech", "data", "runs", "nodes"):
        assert httpx.get(f"{ada.url}/v1/{path}", headers=token).status_code == 403, path
    assert httpx.get(f"{ada.url}/api/flow_runs/{run_id}", headers=token).status_code == 403
    node.ledger.close()
    site.ledger.node_logins.remove("right")
    assert httpx.get(f"{ada.url}/v1/data", headers=token).status_code == 401


def test_what_broke_off_goes_on_where_it_was(
    site: Site, ada: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    put = UploadChunks.put

    def breaks(self: UploadChunks, team: str, data: bytes) -> bool:
        if len(sent) == 1:
            raise InvalidInput("data", "the second", "the connection is cut here")
        sent.append(len(data))
        return put(self, team, data)

    monkeypatch.setattr(UploadChunks, "put", breaks)
    with pytest.raises(InvalidInput, match="cut here"):
        ada.put_data(folder)
    assert ada.data() == []
    monkeypatch.setattr(UploadChunks, "put", put)
    again: list[tuple[str, int, int]] = []
    whole = ada.put_data(folder, told=lambda *far: again.append(far))
    assert {of for what, _, of in again if what == "sending"} == {whole["size_bytes"] - sent[0]}
    ada.put_data(folder, told=lambda what, *_: sent.append(0) if what == "sending" else None)
    assert len(sent) == 1  # all of it is there


def test_names_stay_what_they_are_and_another_teams_do_not_exist(
    site: Site, ada: Client, bob: Client, url: str, folder: Path
) -> None:
    ada.put_data(folder / "labels.csv", "set")
    with pytest.raises(InvalidInput, match="ada has put other data under this name"):
        ada.put_data(folder / "train" / "1.bin", "set")
    assert bob.data() == []
    for job in (
        {"dataset": {"uri": "headway://set"}},
        {"datasets": {"a": {"uri": "headway://set"}}},
    ):
        with pytest.raises(InvalidInput, match="team speech has put no data of this name"):
            bob.submit(JOB | job)
    with pytest.raises(InvalidInput, match="team speech has none of this name"):
        bob.remove_data("set")
    with client_of(site, url, "mate", "vision") as mate:
        assert [each["owner"] for each in mate.data()] == ["ada"]
        with pytest.raises(GatewayRefused, match="is ada's"):
            mate.remove_data("set")
    # Who knows a hash is told that it is missing, whoever else has it.
    headers = bearer(site, "bob", "speech", MEMBER)
    with httpx.Client(base_url=f"{url}/v1", headers=headers) as theirs:
        asked = theirs.post("/data", params={"name": "set"}, content=manifest().text)
        assert asked.json() == {"missing": [sha256(CANARY)]}
        for route in ("/data", "/data/chunks", f"/data/chunks/{sha256(CANARY)}"):
            assert theirs.get(route, params={"team": "vision"}).status_code in (403, 405)
        assert (
            theirs.get(f"/data/chunks/{sha256(CANARY)}", params={"team": "speech"}).status_code
            == 403
        )


def test_what_a_run_needs_is_not_removed(site: Site, ada: Client, folder: Path) -> None:
    ada.put_data(folder / "labels.csv", "set")
    ada.put_data(folder, "all")
    made = ada.submit(JOB | {"datasets": {"some": {"uri": "headway://set"}}})
    with pytest.raises(InvalidInput, match=f"needed by {JOB['name']}"):
        ada.remove_data("set")
    assert unused_uploads(site, 0.0) == [site.ledger.uploads.get("vision", "all")]
    record = site.ledger.runs.get(made["run_id"])
    ended = Exit(ExitKind.CANCELLED, None, "by its user")
    site.ledger.runs.finish(record.unleased, ended, Measurement())
    ada.remove_data("set")
    assert site.upload_chunks.read("vision", sha256(CANARY)) == CANARY  # the other one has it, too
    for upload in unused_uploads(site, 0.0):
        assert remove_upload(site, upload)
    assert site.upload_chunks.read("vision", sha256(CANARY)) is None
    assert ada.data() == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (manifest("../../etc/x", is_directory=True), "without empty parts"),
        (manifest("/etc/x", is_directory=True), "without empty parts"),
        (manifest("a\x1b[2J", is_directory=True), "control"),
        (manifest("a/b"), "give one file, or a directory"),
        (manifest(size=0), "give one chunk for each"),
        (manifest(size=-1), "give at most"),
        (manifest(size=2**60), "give at most"),
        (manifest(chunk="A" * 64), "lower-case hexadecimal"),
        (manifest(chunk="../../../token"), "lower-case hexadecimal"),
        (
            folder_of("a", "A"),
            "order",
        ),
        (
            folder_of("A", "a"),
            "case",
        ),
        (folder_of(), "give data of 1 B"),
    ],
)
def test_what_is_no_manifest_is_refused(
    raw: httpx.Client, wrong: UploadManifest, said: str
) -> None:
    answer = raw.post("/data", params={"name": "set"}, content=wrong.text)
    assert (answer.status_code, said in answer.text) == (422, True), answer.text


def test_a_name_that_is_a_path_is_refused(raw: httpx.Client) -> None:
    for name in ("../x", "a/b", ".hidden", "", "x" * 64, "a\0"):
        answer = raw.post("/data", params={"name": name}, content=manifest().text)
        assert answer.status_code == 422, name
    assert raw.delete("/data/..%2f..%2fetc").status_code in (404, 405, 422)


def test_sizes_and_hashes_that_lie_get_no_name(site: Site, raw: httpx.Client) -> None:
    assert raw.post("/data/chunks", content=CANARY).json() == {"new": True}
    for lie, said in [
        (manifest(size=len(CANARY) + 1), "has 31 B, not 32"),
        (manifest(chunk=sha256(b"other")), sha256(b"other")),
    ]:
        answer = raw.post("/data", params={"name": "set"}, content=lie.text)
        assert said in answer.text
    assert raw.get("/data").json() == []
    too_large = raw.post("/data/chunks", content=bytes(DATA.chunk_bytes + 1))
    assert (too_large.status_code, "more than 4.0 MiB" in too_large.text) == (422, True)
    # What was damaged on the disk is not handed out, and asked for anew.
    (damaged,) = site.settings.uploads_dir.glob("vision/*/*")
    damaged.write_bytes(b"canary: another data, as long !!")
    assert site.upload_chunks.read("vision", sha256(CANARY)) is None
    asked = raw.post("/data", params={"name": "set"}, content=manifest().text)
    assert asked.json() == {"missing": [sha256(CANARY)]}


def test_a_team_has_no_more_than_its_part(tmp_path: Path) -> None:
    limit = 2 * FILE_BYTES + 100
    chunks = UploadChunks(tmp_path / "uploads", limit_bytes=limit)
    assert chunks.put("vision", bytes(60))
    assert not chunks.put("vision", bytes(60))
    with pytest.raises(InvalidInput, match=r"may take 32 KiB, and takes 16 KiB"):
        chunks.put("vision", b"1" * 41)
    assert chunks.put("speech", b"1" * 41)
    # Another process has removed some: it is counted anew before anybody is refused.
    UploadChunks(tmp_path / "uploads", limit_bytes=limit).remove("vision", [sha256(bytes(60))])
    assert chunks.put("vision", b"1" * 99)
    assert chunks.put("vision", b"3")
    with pytest.raises(InvalidInput, match=r"counting 16 KiB for each part"):
        chunks.put("vision", b"4")  # a file of one byte takes an inode, too


def test_who_puts_the_same_again_writes_nothing(site: Site, raw: httpx.Client) -> None:
    raw.post("/data/chunks", content=CANARY)
    first = raw.post("/data", params={"name": "set"}, content=manifest().text).json()
    chunk = site.settings.uploads_dir / "vision" / sha256(CANARY)[:2] / sha256(CANARY)
    before = chunk.stat(), len(site.ledger.audit_log.newest(100))
    assert raw.post("/data", params={"name": "set"}, content=manifest().text).json() == first
    assert (chunk.stat(), len(site.ledger.audit_log.newest(100))) == before
    chunk.unlink()  # what was lost is asked for again
    asked = raw.post("/data", params={"name": "set"}, content=manifest().text).json()
    assert asked == {"missing": [sha256(CANARY)]}


def test_who_removes_without_end_is_refused(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr("headway.gateway.uploads._REMOVED", Rate(per_s=0.001, burst=2))
    raw: httpx.Client = request.getfixturevalue("raw")
    assert [raw.delete("/data/none").status_code for _ in range(3)] == [422, 422, 429]


def test_parts_of_no_data_set_go_once_nobody_sends_them(
    site: Site, ada: Client, folder: Path
) -> None:
    ada.put_data(folder / "labels.csv", "set")
    site.upload_chunks.put("vision", b"of an upload that goes on")
    site.upload_chunks.put("vision", b"of one that broke off")
    for path in site.settings.uploads_dir.glob("vision/*/*"):
        if path.name != sha256(b"of an upload that goes on"):
            os.utime(path, (0, 0))
    tidy_uploads(site)
    left = {path.name for path in site.settings.uploads_dir.glob("vision/*/*")}
    assert left == {sha256(CANARY), sha256(b"of an upload that goes on")}


def test_what_is_about_to_get_a_name_is_not_removed_with_another_one(
    site: Site, raw: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw.post("/data/chunks", content=CANARY)
    raw.post("/data", params={"name": "first"}, content=manifest().text)
    removing = threading.Thread(target=raw.delete, args=("/data/first",))

    def note(*_: object) -> None:
        removing.start()
        removing.join(timeout=1)  # with nothing to wait for it ends here
        monkeypatch.undo()

    monkeypatch.setattr(uploads, "note_act", note)
    asked = raw.post("/data", params={"name": "second"}, content=manifest().text)
    assert asked.json()["missing"] == []
    removing.join(timeout=30)
    assert [each["name"] for each in raw.get("/data").json()] == ["second"]
    assert site.upload_chunks.read("vision", sha256(CANARY)) == CANARY


def test_lists_of_files_do_not_fill_the_ledger(
    raw: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw.post("/data/chunks", content=CANARY)
    size = len(manifest().text) + UPLOAD_ROW_BYTES
    monkeypatch.setattr(uploads, "MOST_MANIFESTS_BYTES", 2 * size)
    for name in ("a", "b", "a"):
        asked = raw.post("/data", params={"name": name}, content=manifest().text)
        assert asked.status_code == 200
    asked = raw.post("/data", params={"name": "c"}, content=manifest().text)
    assert (asked.status_code, f"and take {format_size(2 * size)}" in asked.text) == (422, True)


def test_a_part_that_is_finished_or_removed_meanwhile_is_no_error(tmp_path: Path) -> None:
    chunks = UploadChunks(tmp_path, limit_bytes=100 * KIB)
    chunks.put("vision", CANARY)
    place = tmp_path / "vision" / sha256(CANARY)[:2]
    (place / "gone").symlink_to("nowhere")  # is listed, and then is not there
    UploadChunks(tmp_path, limit_bytes=100 * KIB).check_room("vision", [1])
    assert chunks.unasked("vision", SystemClock().now()) == set()


def test_links_do_not_travel(ada: Client, folder: Path) -> None:
    (folder / "train" / "secret").symlink_to("/etc/shadow")
    with pytest.raises(InvalidInput, match="links do not travel"):
        ada.put_data(folder)


def test_a_token_that_only_watches_puts_nothing(site: Site, url: str, folder: Path) -> None:
    watching = bearer(site, "eve", "vision", {Scope.WATCH})["Authorization"].split()[1]
    with Client(Address(url, watching)) as eve, pytest.raises(GatewayRefused, match="submit"):
        eve.put_data(folder)
