"""Data sets from the caches of other nodes: two homes, one ledger, real file servers."""

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from uuid import uuid4

import fsspec
import httpx
import pytest
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.model.access import token_digest
from headway.model.job_parts import Dataset
from headway.model.node import Capacity, Node
from headway.model.run_file import signed
from headway.model.staged import HeldSet
from headway.node import file_server
from headway.node.file_server import serve_on
from headway.run import peers as run_peers
from headway.run.peers import NodePeers
from headway.settings import Settings
from headway.site import Site
from headway.staging import peers as staging_peers
from headway.staging.cache import StagedDataset
from headway.staging.errors import SourceMissing
from headway.staging.reader import Reader, UserReader
from headway.staging.rules import SourceRules
from headway.staging.shard import Part
from headway.staging.source import SourceFile
from headway.testing.staging import OpenReader
from headway.testing.staging_contract import PEER_FILES, PeersContract
from headway.units import GIB, MIB
from tests.support.api import MEMBER, bearer, serving
from tests.support.postgresql import new_ledger
from tests.support.web import web_server

SECURED = {"b": True, "c": False}
"""One node serves with a certificate of its own, as on the network; one as on one machine."""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, Site]]:
    url, made = SecretStr(new_ledger()), {}
    for name in "abc":
        home = tmp_path / name
        home.mkdir()
        settings = Settings(home=home, ledger_url=url, node=name, runtime="process")
        site = made[name] = Site(settings, SystemClock())
        site.settings.state_dir.mkdir()
        node = Node(name, "gpu", Capacity(8.0, 64 * GIB))
        site.ledger.nodes.register(node, boot_id="boot", worker_token=site.worker_token)
        if name in SECURED:
            serve_on(site, "127.0.0.1", secured=SECURED[name])
    yield made
    for site in made.values():
        site.ledger.close()


@pytest.fixture
def images() -> Iterator[dict[str, bytes]]:
    """A directory far away."""
    files = {name: os.urandom(size) for name, size in (("x/1", 3 * MIB), ("x/2", 10), ("y", 99))}
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pipe({f"/far/{name}": data for name, data in files.items()})
    yield files
    memory.store.clear()


class Counted(OpenReader):
    """What was read of the source, by file."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.probed: list[str] = []
        self.closed = False

    @contextmanager
    def reading(self, uri: str, check: Callable[[], None]):
        with super().reading(uri, check) as opened:
            pieces, probe = opened.pieces, opened.probe

            def counted(file: SourceFile) -> Iterator[bytes]:
                self.read.append(file.name)
                return pieces(file)

            def probed(file: SourceFile) -> None:
                self.probed.append(file.name)
                if self.closed:
                    raise SourceMissing(uri, "it may be listed, and not be read")
                probe(file)

            opened.pieces, opened.probe = counted, probed
            yield opened


def stage(
    site: Site,
    reader: Reader,
    uri: str = "memory://far",
    part: Part | None = None,
    sha256: str | None = None,
) -> StagedDataset:
    cache = site.cache_reading(reader, NodePeers(site))
    dataset = Dataset.model_construct(uri=uri, sha256=sha256, size=None)
    return cache.stage(dataset, "r", progress=lambda done, total: None, part=part)


def content(staged: StagedDataset) -> dict[str, bytes]:
    files = (path for path in staged.path.rglob("*") if path.is_file())
    return {path.relative_to(staged.path).as_posix(): path.read_bytes() for path in files}


# --- the port ---


class TestNodePeers(PeersContract):
    @pytest.fixture
    def peers(self, nodes: dict[str, Site]) -> NodePeers:
        return NodePeers(nodes["a"])

    @pytest.fixture
    def held(self, nodes: dict[str, Site], tmp_path: Path) -> HeldSet:
        for name, data in PEER_FILES.items():
            path = tmp_path / "set" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        stage(nodes["b"], OpenReader(), str(tmp_path / "set"))
        (known,) = nodes["b"].ledger.staged.list("b")
        return HeldSet("b", known.key, known.sha256)


# --- what it is for ---


def test_the_second_node_reads_the_first_ones_cache(nodes, images) -> None:
    first, second, third = stage(nodes["b"], Counted()), Counted(), Counted()
    staged = stage(nodes["a"], second)
    assert content(staged) == content(first) == images
    assert (staged.sha256, staged.from_cache) == (first.sha256, False)
    assert staged.peer_bytes == {"b": sum(map(len, images.values()))}
    assert (second.read, second.probed) == ([], ["x/1"])
    # A node whose job tells the hash of the same data finds it as well, now at two nodes.
    assert stage(nodes["c"], third, sha256=first.sha256).peer_bytes
    assert third.read == []
    assert stage(nodes["a"], second).from_cache


def test_parts_are_put_together_from_other_parts_and_from_the_whole(nodes, images) -> None:
    halves = [stage(nodes[name], Counted(), part=Part(n, 2)) for n, name in enumerate("bc")]
    assert [len(content(each)) for each in halves] == [1, 2]
    reader = Counted()
    assert content(stage(nodes["a"], reader)) == images
    assert reader.read == []
    nodes["c"].ledger.nodes.remove("c")
    nodes["b"].ledger.nodes.remove("b")
    reader, whole = Counted(), nodes["a"]
    serve_on(whole, "127.0.0.1", secured=False)
    nodes["b"].ledger.nodes.register(
        Node("b", "gpu", Capacity(8.0, 64 * GIB)), boot_id="boot", worker_token="x"
    )
    third = stage(nodes["b"], reader, part=Part(2, 3))
    assert list(third.peer_bytes) == ["a"]
    assert reader.read == []


def test_what_may_be_listed_and_not_read_is_not_had_from_another_node(nodes, images) -> None:
    stage(nodes["b"], Counted())
    reader = Counted()
    reader.closed = True
    with pytest.raises(SourceMissing, match="may be listed"):
        stage(nodes["a"], reader)
    assert list((nodes["a"].settings.cache_dir / "sets").iterdir()) == []


def test_an_older_version_is_not_taken(nodes, images) -> None:
    stage(nodes["b"], Counted())
    fsspec.filesystem("memory").pipe({"/far/y": b"new"})
    reader = Counted()
    staged = stage(nodes["a"], reader)
    assert content(staged) == {**images, "y": b"new"}
    assert staged.peer_bytes == {}
    assert len(reader.read) == 3


def test_two_nodes_that_begin_at_once_do_not_wait_for_each_other(nodes, images) -> None:
    found: dict[str, StagedDataset] = {}

    def run(name: str) -> None:
        found[name] = stage(nodes[name], Counted())

    threads = [threading.Thread(target=run, args=(name,)) for name in "bc"]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert content(found["b"]) == content(found["c"]) == images
    assert stage(nodes["a"], Counted()).peer_bytes


def test_a_path_is_read_where_it_is(nodes, tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text("one")
    for name in "ba":
        assert stage(nodes[name], OpenReader(), str(tmp_path / "set.csv")).peer_bytes == {}


def test_a_file_of_the_web_is_had_from_the_other_node(nodes) -> None:
    data = os.urandom(2 * MIB)
    reader = UserReader(None, SourceRules(hosts=("127.0.0.1",)))
    with web_server(data) as address:
        found = [stage(nodes[name], reader, f"{address}/set.bin") for name in "ba"]
    assert [each.path.read_bytes() == data for each in found] == [True, True]
    assert [each.peer_bytes for each in found] == [{}, {"b": 2 * MIB}]


# --- what goes wrong ---


class Between:
    """Hands on what node ``c`` answers, as *change* makes of it."""

    def __init__(self, site: Site, change: Callable[[str, int, bytes], bytes | None]) -> None:
        """*change* is told the request's target, the bytes before, and a piece; None hangs up."""
        node = site.ledger.nodes.get(site.settings.node)
        assert node is not None
        host, _, port = node.files_url.removeprefix("http://").rpartition(":")
        self._to, self._change = (host, int(port)), change
        self._listener = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        site.ledger.nodes.serves_files(node.node.name, site.worker_token, url=url, certificate="")
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with suppress(OSError), caller, socket.create_connection(self._to) as node:
            while asked := caller.recv(1 << 16):
                target = asked.split()[1].decode()
                node.sendall(asked)
                self._answer(caller, node, target)

    def _answer(self, caller: socket.socket, node: socket.socket, target: str) -> None:
        """One answer: its head as it is, and of its body each piece as it is made to be."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += node.recv(1 << 16)
        head, _, body = data.partition(b"\r\n\r\n")
        (length,) = (
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        caller.sendall(head + b"\r\n\r\n")
        came = 0
        while came < length:
            body = body or node.recv(1 << 16)
            made = self._change(target, came, body)
            if made is None:
                caller.close()
                return
            came += len(body)
            caller.sendall(made)
            body = b""


def is_file(target: str) -> bool:
    return target.count("/") > 2


def dies_in_the_middle(target: str, came: int, piece: bytes) -> bytes | None:
    return None if is_file(target) and came > MIB else piece


def sends_other_bytes(target: str, came: int, piece: bytes) -> bytes:
    return piece[:-1] + bytes([piece[-1] ^ 1]) if is_file(target) else piece


def lists_other_files(target: str, came: int, piece: bytes) -> bytes:
    return piece if is_file(target) else piece.replace(b"x/2", b"x/3")


def lists_no_json(target: str, came: int, piece: bytes) -> bytes:
    return piece if is_file(target) else b"[" * len(piece)


def lists_no_size(target: str, came: int, piece: bytes) -> bytes:
    return piece if is_file(target) else piece.replace(b", 10, ", b",1e999,")


def drips(target: str, came: int, piece: bytes) -> bytes:
    if is_file(target):
        time.sleep(0.1)
    return piece


def is_silent(target: str, came: int, piece: bytes) -> bytes | None:
    time.sleep(3.0)
    return None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (dies_in_the_middle, "peer closed|Errno|[Dd]isconnected"),
        (sends_other_bytes, "it sent other bytes as x/1"),
        (lists_other_files, "not that of the set in the ledger"),
        (lists_no_json, "its list of files is none"),
        (lists_no_size, "its list of files is none"),
        (drips, "MiB/s, less than 4"),
        (is_silent, "timed out|ReadTimeout"),
    ],
)
def test_a_node_that_fails_costs_time_and_no_more(
    nodes, images, monkeypatch: pytest.MonkeyPatch, change, why: str
) -> None:
    monkeypatch.setattr(staging_peers, "WINDOW_S", 0.3)
    monkeypatch.setattr(run_peers, "_SILENT_S", 1.0)
    stage(nodes["c"], Counted())
    Between(nodes["c"], change)
    reader = Counted()
    seen: list[int] = []
    cache = nodes["a"].cache_reading(reader, NodePeers(nodes["a"]))
    dataset = Dataset.model_construct(uri="memory://far", sha256=None, size=None)
    staged = cache.stage(dataset, "r", progress=lambda done, total: seen.append(done))
    assert content(staged) == images
    assert reader.read == ["x/1", "x/2", "y"]
    assert seen[-1] == sum(map(len, images.values()))
    (left,) = staged.peers_left
    assert left.node == "c"
    assert re.search(why, left.cause), left.cause
    assert list((nodes["a"].settings.cache_dir / "tmp").iterdir()) == []


def test_nodes_that_are_gone_or_busy_are_not_waited_for(
    nodes, images, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "bc":
        stage(nodes[name], OpenReader())
    monkeypatch.setattr(file_server, "_MOST_SETS_AT_ONCE", 0)
    ledger = nodes["c"].ledger
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    ledger.nodes.serves_files("c", nodes["c"].worker_token, url=url, certificate="")
    staged = stage(nodes["a"], OpenReader())
    assert content(staged) == images
    assert staged.peer_bytes == {}
    causes = {each.node: each.cause for each in staged.peers_left}
    assert causes["b"] == "it answers with HTTP 503"
    assert "refused" in causes["c"]


def test_cancelling_while_another_node_sends_leaves_nothing(nodes, images) -> None:
    stage(nodes["b"], OpenReader())
    cache = nodes["a"].cache_reading(OpenReader(), NodePeers(nodes["a"]))

    def cancelled(done: int, total: int | None) -> None:
        if done > MIB:
            raise KeyboardInterrupt

    dataset = Dataset.model_construct(uri="memory://far", sha256=None, size=None)
    with pytest.raises(KeyboardInterrupt):
        cache.stage(dataset, "r", progress=cancelled)
    assert list((nodes["a"].settings.cache_dir / "tmp").iterdir()) == []


# --- who is not answered ---


def test_data_of_a_cache_is_given_to_nodes_of_the_site_alone(nodes, images) -> None:
    stage(nodes["c"], OpenReader())
    ((key,), node) = (
        [each.key for each in nodes["c"].ledger.staged.list("c")],
        nodes["c"].ledger.nodes.get("c"),
    )
    assert node is not None
    target, now_s = f"/sets/{key}", time.time()
    headers = {
        "nothing": {},
        "a member's token": bearer(nodes["a"], "ada", "vision", MEMBER),
        "another node's": signed(token_digest(nodes["b"].worker_token), "c", "GET", target, now_s),
        "for another node": signed(node.sets_key, "b", "GET", target, now_s),
        "for a run's log": signed(node.sets_key, "c", "GET", f"/runs/{key}/log", now_s),
    }
    for what, each in headers.items():
        assert httpx.get(node.files_url + target, headers=each).status_code == 403, what
    once = signed(node.sets_key, "c", "GET", target, now_s)
    answers = [httpx.get(node.files_url + target, headers=once).status_code for _ in range(2)]
    assert answers == [200, 403]
    log = f"/runs/{uuid4()}/log"  # what nodes know of each other opens nothing of a run
    headers["of a run"] = signed(node.sets_key, "c", "GET", log, now_s)
    assert httpx.get(node.files_url + log, headers=headers["of a run"]).status_code == 403


def test_the_gateway_asks_no_node_for_its_cache(nodes, images) -> None:
    stage(nodes["c"], OpenReader())
    (known,) = nodes["c"].ledger.staged.list("c")
    headers = bearer(nodes["a"], "ada", "vision", MEMBER)
    with serving(nodes["a"]) as url, httpx.Client(headers=headers) as member:
        for path in (f"..%2fsets%2f{known.key}", f"../../sets/{known.key}", f"../sets/{known.key}"):
            for rest in ("outputs", "outputs/x/1", "log"):
                raw = f"/v1/runs/{path}/{rest}".encode()
                got = member.get(httpx.URL(url).copy_with(raw_path=raw))
                assert got.status_code >= 400, got.text
                assert images["x/2"] not in got.content


def test_a_name_leads_nowhere_else(nodes, images, tmp_path: Path) -> None:
    staged = stage(nodes["c"], OpenReader())
    (known,) = nodes["c"].ledger.staged.list("c")
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    staged.path.chmod(0o700)
    (staged.path / "link").symlink_to(secret)
    (staged.path / "way").symlink_to(tmp_path)
    os.mkfifo(staged.path / "pipe")
    node = nodes["c"].ledger.nodes.get("c")
    assert node is not None
    names = ["link", "way/secret", "pipe", "..", "../manifest.json", "x/../../manifest.json"]
    names += ["%2e%2e/manifest.json", "..%2fmanifest.json", "/etc/passwd", "%00", "x", "x/1/"]
    targets = [f"/sets/{known.key}/{name}" for name in names]
    targets += ["/sets/..", "/sets/../state/files.port", f"/sets/{known.key[:-1]}", "/sets/"]
    targets += [f"/sets/{known.key}x", "/sets/..%2fsets", f"/sets/{known.key}%2f..%2f{known.key}"]
    connection = HTTPConnection(node.files_url.removeprefix("http://"), timeout=60)
    right = f"/sets/{known.key}/x/2"
    for target in (*targets, right):
        headers = signed(node.sets_key, "c", "GET", target, time.time())
        connection.request("GET", target, headers=headers)  # to the letter, as httpx does not
        got = connection.getresponse()
        text = got.read()
        assert got.status == (200 if target == right else 404), target
        assert text == images["x/2"] or b"no such" in text
    connection.close()
