"""Log and outputs of a run on another node: two homes, one ledger, and the gateway between."""

import hashlib
import os
import queue
import shutil
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from headway.client import Client
from headway.client.download import NOTES, Download, DownloadFailed, chosen, take_folder
from headway.clock import SystemClock
from headway.credentials import Address
from headway.errors import InvalidInput
from headway.ledger import Ledger
from headway.model.lease import Demand, Lease
from headway.model.node import Capacity, Node
from headway.model.run import Exit, ExitKind, Measurement
from headway.model.run_file import EXPIRES, FROM, NEXT_ATTEMPT, NONCE, signed
from headway.node.file_server import serve_on
from headway.node.shares import WHOSE, TeamLimiters
from headway.run.here import container_name, log_path
from headway.runtime import secretfiles
from headway.settings import Settings
from headway.site import Site
from headway.units import GIB
from tests.ports.clock import FakeClock
from tests.support.api import MEMBER, bearer, serving
from tests.support.leading import grant_in_term
from tests.support.on_ledger import enqueue
from tests.support.postgresql import new_ledger

RUN = "0b9a7b4e-5a33-4c8f-9a51-0c4b6c0f3f11"
NEVER = "0b9a7b4e-5a33-4c8f-9a51-0c4b6c0f3f12"
JOB = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[dict[str, Site]]:
    """The gateway's machine ``head``, and the node ``left`` on which the run is."""
    url, made = SecretStr(new_ledger()), {}
    for name in ("head", "left"):
        home = tmp_path / name
        home.mkdir()
        site = made[name] = Site(
            Settings(home=home, ledger_url=url, node=name, runtime="process"), SystemClock()
        )
        site.settings.state_dir.mkdir()
        node = Node(name, "gpu", Capacity(8.0, 64 * GIB))
        site.ledger.nodes.register(node, boot_id="boot", worker_token=site.worker_token)
    for run_id in (RUN, NEVER):
        enqueue(made["head"].ledger, run_id, JOB, name=run_id[-2:], owner="ada", team="vision")
    begin(made["left"])
    yield made
    for site in made.values():
        site.ledger.close()


def begin(site: Site) -> Lease:
    """Let the run's attempt start on *site*'s node."""
    node = site.settings.node
    lease = grant_in_term(site.ledger, RUN, node, Demand(GIB), ttl_s=900.0)
    site.ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=900.0)
    return lease


def end(site: Site) -> None:
    lease = site.ledger.leases.of_run(RUN)
    assert lease is not None
    site.ledger.runs.finish(lease.fence, Exit(ExitKind.OK, 0, "done"), Measurement())
    site.ledger.leases.release(lease.fence)


def log_of(site: Site, attempt: int = 1) -> Path:
    path = log_path(site.settings, RUN, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def output_of(site: Site, name: bytes, data: bytes) -> Path:
    path = site.settings.runs_dir / RUN / "outputs" / os.fsdecode(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.fixture
def member(sites: dict[str, Site]) -> Iterator[httpx.Client]:
    """A member of the run's team at the gateway, while the node serves its files."""
    serve_on(sites["left"], "127.0.0.1", secured=True)
    headers = bearer(sites["head"], "ada", "vision", MEMBER)
    with (
        serving(sites["head"]) as url,
        httpx.Client(base_url=f"{url}/v1", headers=headers) as opened,
    ):
        opened.timeout = 60
        yield opened


def test_outputs_come_from_the_node_that_has_them(sites, member) -> None:
    data = os.urandom(3 << 20)
    output_of(sites["left"], b"deep/model.pt", data)
    output_of(sites["left"], b"\xff\n\x1b[2J", b"odd")
    (listed, odd) = member.get(f"/runs/{RUN}/outputs").json()["files"]
    assert (listed["path"], listed["bytes"]) == ("deep/model.pt", len(data))
    got = member.get(f"/runs/{RUN}/outputs/{listed['href']}")
    assert got.content == data
    assert got.headers["content-type"] == "application/octet-stream"
    assert member.get(f"/runs/{RUN}/outputs/{odd['href']}").content == b"odd"
    asked = member.head(
        f"/runs/{RUN}/outputs/{listed['href']}", headers={"Want-Repr-Digest": "sha-256=1"}
    )
    digest = b64encode(hashlib.sha256(data).digest()).decode()
    assert asked.headers["repr-digest"] == f"sha-256=:{digest}:"
    assert asked.headers["content-length"] == str(len(data))
    again = member.get(f"/runs/{RUN}/outputs").json()["files"][0]
    assert again["sha256"] == hashlib.sha256(data).hexdigest()


def test_a_node_shares_what_it_has_among_the_teams_that_ask(sites, member, monkeypatch) -> None:
    """Else one team's digests of terabytes would keep all others waiting there."""
    own, asked = TeamLimiters.own, set()

    def noted(limiters: TeamLimiters) -> object:
        asked.add((threading.current_thread().name, WHOSE.get()))
        return own(limiters)

    monkeypatch.setattr(TeamLimiters, "own", noted)
    output_of(sites["left"], b"x", b"data")
    assert member.get(f"/runs/{RUN}/outputs/x").content == b"data"
    assert {whose for thread, whose in asked if thread == "files"} == {"vision"}


def test_a_download_goes_on_where_it_broke_off_unless_the_file_has_changed(sites, member) -> None:
    path = output_of(sites["left"], b"model.pt", b"0123456789" * 1000)
    url = f"/runs/{RUN}/outputs/model.pt"
    tag = member.get(url).headers["etag"]
    rest = member.get(url, headers={"Range": "bytes=9995-", "If-Range": tag})
    assert (rest.status_code, rest.content) == (206, b"56789")
    assert rest.headers["content-range"] == "bytes 9995-9999/10000"
    assert member.get(url, headers={"Range": "bytes=10000-"}).status_code == 416
    path.write_bytes(b"new")
    whole = member.get(url, headers={"Range": "bytes=9995-", "If-Range": tag})
    assert (whole.status_code, whole.content) == (200, b"new")


def test_a_file_that_is_cut_while_it_is_sent_is_no_whole_answer(sites, member) -> None:
    path = output_of(sites["left"], b"large", b"x" * (64 << 20))

    def read() -> None:
        with member.stream("GET", f"/runs/{RUN}/outputs/large") as answer:
            for _ in answer.iter_bytes(1 << 16):
                os.truncate(path, 1 << 20)

    with pytest.raises(httpx.RemoteProtocolError):
        read()


def test_a_log_is_followed_to_its_end_with_its_secrets_struck_out(sites, member) -> None:
    left = sites["left"]
    secrets = left.settings.secrets_dir / container_name(RUN, 1)
    secretfiles.write(secrets, {"KEY": "s3cret-value"}, None)
    path = log_of(left)
    path.write_bytes(b"epoch 1\n")
    with member.stream("GET", f"/runs/{RUN}/log", params={"follow": True}) as answer:
        pieces = answer.iter_bytes()
        assert answer.headers[FROM] == "0"
        assert next(pieces) == b"epoch 1\n"
        with path.open("ab") as log:
            log.write(b"s3cret-value epoch 2\n")
        assert next(pieces) == b"************ epoch 2\n"
        with path.open("ab") as log:
            log.write(b"last\n")
        end(left)
        assert b"".join(pieces) == b"last\n"
    rest = member.get(f"/runs/{RUN}/log", params={"from": 8, "follow": True})
    assert (rest.headers[FROM], rest.content) == ("8", b"************ epoch 2\nlast\n")
    done = member.get(f"/runs/{RUN}/log", params={"from": 34, "follow": True})
    assert done.status_code == 204
    assert NEXT_ATTEMPT not in done.headers


def test_ten_follow_one_log_and_all_of_them_get_all_of_it(sites, member) -> None:
    path = log_of(sites["left"])
    got: list[bytes] = []

    def follow() -> None:
        with member.stream("GET", f"/runs/{RUN}/log", params={"follow": True}) as answer:
            got.append(answer.read())

    followers = [threading.Thread(target=follow) for _ in range(10)]
    path.write_bytes(b"begin\n")
    for each in followers:
        each.start()
    for number in range(200):
        with path.open("ab") as log:
            log.write(f"line {number}\n".encode())
    end(sites["left"])
    for each in followers:
        each.join(60)
    assert got == [path.read_bytes()] * 10


def test_another_teams_files_do_not_exist(sites, member) -> None:
    output_of(sites["left"], b"model.pt", b"canary")
    log_of(sites["left"]).write_bytes(b"canary")
    member.headers = bearer(sites["head"], "eve", "speech", MEMBER)
    for path in ("log", "outputs", "outputs/model.pt"):
        answer = member.get(f"/runs/{RUN}/{path}")
        assert (answer.status_code, b"canary" in answer.content) == (404, False), path
    member.headers = {}
    assert member.get(f"/runs/{RUN}/outputs/model.pt").status_code == 401


OUTSIDE = (
    "..%2F..%2F..%2Fledger.db", "%2e%2e/log/attempt-1.log", "../log/attempt-1.log",
    "model.pt%2F..%2F..%2Flog%2Fattempt-1.log", "//etc/passwd", "%00", "link", "",
    "outputs/../../log/attempt-1.log",
)  # fmt: skip


def test_no_path_leads_out_of_the_outputs(sites, member) -> None:
    log_of(sites["left"]).write_bytes(b"canary")
    output_of(sites["left"], b"model.pt", b"fine")
    (sites["left"].settings.runs_dir / RUN / "outputs" / "link").symlink_to("/etc/passwd")
    where = httpx.URL(str(member.base_url))
    for path in OUTSIDE:
        with closing(HTTPConnection(where.host, where.port)) as raw:  # which leaves it as it is
            headers = {"Authorization": member.headers["authorization"]}
            raw.request("GET", f"/v1/runs/{RUN}/outputs/{path}", headers=headers)
            answer = raw.getresponse()
            assert answer.status == 404, path
            assert b"canary" not in answer.read()


def test_a_node_answers_nobody_but_the_gateway(sites, member) -> None:
    left = sites["left"]
    output_of(left, b"model.pt", b"canary")
    node = left.ledger.nodes.get("left")
    assert node is not None
    target = f"/runs/{RUN}/outputs/model.pt"
    now_s = left.clock.now().timestamp()
    right = signed(node.worker_token, "left", "GET", target, now_s)
    unused = signed(node.worker_token, "left", "GET", target, now_s)
    with httpx.Client(base_url=node.files_url, verify=False) as anybody:
        assert anybody.get(target, headers=right).content == b"canary"
        old = signed(node.worker_token, "left", "GET", target, now_s - 3600)
        stolen = [{}, old, right, unused | {EXPIRES: str(int(now_s) + 100)}]
        stolen.append(right | {NONCE: "another"})
        stolen.append(signed("another key", "left", "GET", target, now_s))
        stolen.append(signed(node.worker_token, "head", "GET", target, now_s))
        for headers in stolen:
            answer = anybody.get(target, headers=headers)
            assert (answer.status_code, b"canary" in answer.content) == (403, False)
        other = anybody.get(f"/runs/{RUN}/outputs", headers=unused)
        assert other.status_code == 403
        assert anybody.post(target, headers=unused).status_code == 403
        assert anybody.get(target, headers=unused).status_code == 200


def test_a_machine_in_the_nodes_place_is_not_believed(sites, member) -> None:
    """Whoever took the node's address has not its certificate."""
    left, head = sites["left"], sites["head"]
    output_of(left, b"model.pt", b"fine")
    node = head.ledger.nodes.get("left")
    assert node is not None
    serve_on(left, "127.0.0.1", secured=True)
    other = head.ledger.nodes.get("left")
    assert other is not None
    head.ledger.nodes.serves_files(
        "left", left.worker_token, url=other.files_url, certificate=node.files_certificate
    )
    answer = member.get(f"/runs/{RUN}/outputs")
    assert answer.status_code == 503
    assert "certificate" in answer.json()["detail"]


def test_an_answer_is_sent_in_one_go(sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TCP_NODELAY its body waits 40 ms until the other side has confirmed its headers."""
    served = queue.Queue()
    monkeypatch.setattr("uvicorn.Server.run", lambda _, sockets: served.put(sockets[0]))
    serve_on(sites["left"], "127.0.0.1", secured=False)
    with served.get(timeout=20) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        accepted.close()


def test_a_node_that_is_down_is_named_with_what_to_do(sites, member) -> None:
    left = sites["left"]
    output_of(left, b"model.pt", b"fine")
    left.ledger.nodes.serves_files(
        "left", left.worker_token, url="http://127.0.0.1:1", certificate=""
    )
    for path in ("outputs", "outputs/model.pt", "log"):
        answer = member.get(f"/runs/{RUN}/{path}")
        assert answer.status_code == 503, path
        said = answer.json()["detail"]
        assert "node left" in said
        assert "headway nodes" in said
    Ledger.open(left.settings.database_url).nodes.remove("left")
    assert member.get(f"/runs/{RUN}/outputs").status_code == 503


def test_what_is_not_there_is_not_said_to_be_empty(sites, member) -> None:
    waiting = member.get(f"/runs/{NEVER}/outputs")
    assert waiting.status_code == 404
    assert "begun" in waiting.json()["detail"]
    assert member.get(f"/runs/{NEVER}/log").status_code == 204
    nothing = member.get(f"/runs/{RUN}/outputs")
    assert (nothing.status_code, "never started" in nothing.json()["detail"]) == (404, True)
    end(sites["left"])
    pruned = member.get(f"/runs/{RUN}/log", params={"follow": True})
    assert (pruned.status_code, "pruned" in pruned.json()["detail"]) == (404, True)


@pytest.fixture
def client(member: httpx.Client) -> Iterator[Client]:
    token = member.headers["authorization"].removeprefix("Bearer ")
    with Client(Address(str(member.base_url).removesuffix("/v1/"), token)) as opened:
        yield opened


def fetched(client: Client, folder: Path, *only: str) -> list[bool]:
    """Fetch the outputs; whether each of them had to be fetched."""
    take_folder(folder, RUN)
    download = Download(client, FakeClock(), RUN, None, folder, lambda _: None)
    files = chosen(client.outputs(RUN)["files"], only)
    download.check_room(files)
    return [download.fetch(each) for each in files]


def test_all_of_it_is_fetched_once_and_is_what_lies_there(sites, client, tmp_path) -> None:
    written = {b"a/model.pt": os.urandom(3 << 20), b"b/model.pt": b"", b"\xff\n.txt": b"odd"}
    for name, data in written.items():
        output_of(sites["left"], name, data)
    folder = tmp_path / "here"
    assert fetched(client, folder, "*.pt") == [True, True]
    assert fetched(client, folder) == [False, False, True]
    for name, data in written.items():
        assert (folder / os.fsdecode(name)).read_bytes() == data
    output_of(sites["left"], b"b/model.pt", b"written again")
    assert fetched(client, folder) == [False, True, False]
    assert (folder / "b/model.pt").read_bytes() == b"written again"


def test_what_broke_off_goes_on_and_what_was_damaged_is_fetched_anew(
    sites, client, tmp_path
) -> None:
    data = os.urandom(3 << 20)
    output_of(sites["left"], b"model.pt", data)
    folder = tmp_path / "here"
    take_folder(folder, RUN)
    (listed,) = client.outputs(RUN)["files"]
    part = folder / NOTES / hashlib.sha256(b"model.pt").hexdigest()[:40]
    for begun in (data[: 1 << 20], b"damaged" * 1000, data):
        part.write_bytes(begun)
        part.with_suffix(".version").write_text(listed["version"])
        assert fetched(client, folder) == [True]
        assert (folder / "model.pt").read_bytes() == data
        (folder / "model.pt").unlink()


def test_a_folder_with_anything_else_in_it_is_not_written_to(sites, client, tmp_path) -> None:
    output_of(sites["left"], b".bashrc", b"evil")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "mine").touch()
    with pytest.raises(InvalidInput, match="something else is in it"):
        fetched(client, tmp_path / "home")
    take_folder(tmp_path / "other", NEVER)
    with pytest.raises(InvalidInput, match=NEVER):
        fetched(client, tmp_path / "other")


def test_a_name_never_leads_out_of_the_folder(sites, client, tmp_path) -> None:
    output_of(sites["left"], b"deep/file", b"data")
    (listed,) = client.outputs(RUN)["files"]
    folder = tmp_path / "here"
    take_folder(folder, RUN)
    (folder / "deep").symlink_to(tmp_path)
    download = Download(client, FakeClock(), RUN, None, folder, lambda _: None)
    for href in ("../evil", "/etc/evil", "deep/file", f"{NOTES}/run", "%2e%2e/evil"):
        with pytest.raises(DownloadFailed):
            download.fetch(listed | {"href": href, "path": href})
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "file").exists()


def test_a_folder_that_somebody_else_has_prepared_leads_nowhere(sites, client, tmp_path) -> None:
    """Parts are written to under names that anybody can work out beforehand."""
    output_of(sites["left"], b"model.pt", b"evil")
    folder, mine = tmp_path / "here", tmp_path / "mine"
    (listed,) = client.outputs(RUN)["files"]
    name = hashlib.sha256(b"model.pt").hexdigest()[:40]
    for second_name in (Path.symlink_to, Path.hardlink_to):
        for begun in (b"", b"mine", b"evil"):
            mine.write_bytes(begun)
            os.utime(mine, (1, 1))
            take_folder(folder, RUN)
            second_name(folder / NOTES / name, mine)
            (folder / NOTES / f"{name}.version").write_text(listed["version"])
            assert fetched(client, folder) == [True]
            assert (mine.read_bytes(), mine.stat().st_mtime) == (begun, 1)
            assert not (folder / "model.pt").is_symlink()
            shutil.rmtree(folder)
    folder.mkdir()
    (folder / NOTES).symlink_to(tmp_path)
    (tmp_path / "run").write_text(RUN)
    with pytest.raises(InvalidInput, match="is a link"):
        fetched(client, folder)


def test_more_than_the_disk_holds_is_not_begun(sites, client, tmp_path) -> None:
    with output_of(sites["left"], b"sparse", b"").open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(InvalidInput, match="are free"):
        fetched(client, tmp_path / "here")


def test_an_attempt_whose_node_has_gone_does_not_hide_the_next_one(sites, client) -> None:
    left, head = sites["left"], sites["head"]
    log_of(left).write_bytes(b"lost\n")
    lease = left.ledger.leases.of_run(RUN)
    assert lease is not None
    left.ledger.runs.requeue(lease.fence, Exit(ExitKind.INFRASTRUCTURE, None, "its node"))
    left.ledger.leases.release(lease.fence)
    left.ledger.nodes.remove("left")
    begin(head)
    log_of(head, 2).write_bytes(b"second\n")
    end(head)
    said, log = b"".join(client.log(RUN, follow=True)).decode().splitlines()
    assert "node left" in said
    assert log == "second"


def test_who_follows_a_log_waits_for_a_worker_that_is_started_anew(sites, client) -> None:
    left = sites["left"]
    log_of(left).write_bytes(b"first\n")
    node = left.ledger.nodes.get("left")
    assert node is not None
    left.ledger.nodes.serves_files("left", left.worker_token, url="", certificate="")
    pieces = client.log(RUN, follow=True)
    again = threading.Timer(
        1.5,
        left.ledger.nodes.serves_files,
        ("left", left.worker_token),
        {"url": node.files_url, "certificate": node.files_certificate},
    )
    again.start()
    assert next(pieces) == b"first\n"
    pieces.close()
