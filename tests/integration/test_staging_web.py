"""Data sets from web servers: one that knows neither ranges nor mercy, and ones that lie."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headway.model.job_parts import Dataset
from headway.staging import child
from headway.staging.cache import DataCache, StagedDataset
from headway.staging.errors import SourceMissing, SourceUnreachable, StagingTimedOut
from headway.staging.reader import UserReader
from headway.staging.rules import SourceRules
from headway.staging.source import inspect
from headway.units import MIB
from tests.ports.staging import MemoryIndex

LISTED = SourceRules(hosts=("127.0.0.1",))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "www"
    folder.mkdir()
    (folder / "set.bin").write_bytes(bytes(range(256)) * (9 * MIB // 256))

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None:
            pass

    with Served("127.0.0.1", Quiet) as address:
        yield address


class Served:
    """A web server, within the block."""

    def __init__(self, host: str, handler: Any) -> None:
        self._server = ThreadingHTTPServer((host, 0), handler)
        self._server.daemon_threads = True

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def stage(
    tmp_path: Path, uri: str, rules: SourceRules = LISTED, limit_s: float | None = None
) -> StagedDataset:
    cache = DataCache(
        tmp_path / "cache", 100 * MIB, MemoryIndex(), node="n", reader=UserReader(None, rules)
    )
    dataset = Dataset(uri=uri)
    return cache.stage(dataset, "r", progress=lambda done, total: None, limit_s=limit_s)


def test_a_file_of_a_web_server_is_streamed(tmp_path: Path, site: str) -> None:
    staged = stage(tmp_path, f"{site}/set.bin")
    assert staged.path.name == "set.bin"
    assert staged.path.read_bytes() == (tmp_path / "www" / "set.bin").read_bytes()
    assert stage(tmp_path, f"{site}/set.bin").from_cache


def test_what_the_server_does_not_have_is_missing(tmp_path: Path, site: str) -> None:
    with pytest.raises(SourceMissing):
        stage(tmp_path, f"{site}/none")


def test_a_server_that_is_down_may_be_tried_again(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreachable):
        stage(tmp_path, "http://127.0.0.1:9/set.bin")


# --- where a job must not send the node ---


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[0:0:0:0:0:ffff:7f00:1]", "0.0.0.0"])
def test_this_machine_is_asked_only_where_the_site_lists_it(
    tmp_path: Path, site: str, host: str
) -> None:
    uri = f"{site.replace('127.0.0.1', host)}/set.bin"
    with pytest.raises(SourceMissing, match="no public address"):
        stage(tmp_path, uri, SourceRules())


@pytest.mark.parametrize("where", ["http://127.0.0.1:{port}/set.bin", "http://169.254.169.254/x"])
def test_a_redirect_leads_nowhere_else(tmp_path: Path, site: str, where: str) -> None:
    class Redirects(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", where.format(port=site.rpartition(":")[2]))
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815 - http.server's name

        def log_message(self, *args: object) -> None:
            pass

    with (
        Served("127.0.0.2", Redirects) as address,
        pytest.raises(SourceMissing, match="which is no public address"),
    ):
        stage(tmp_path, f"{address}/x", SourceRules(hosts=("127.0.0.2",)))


def test_a_name_that_means_another_address_later_is_not_followed(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is judged is the address that is connected to, not one that was asked for before."""
    meanings = iter(["127.0.0.2"])
    known = socket.getaddrinfo

    def resolve(host: Any, *more: Any, **named: Any) -> Any:
        host = host.decode() if isinstance(host, bytes) else host
        return known(next(meanings, "127.0.0.1") if host == "data.test" else host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    web = child._web(SourceRules(hosts=("data.test",)))
    uri = f"http://data.test:{site.rpartition(':')[2]}/set.bin"
    with pytest.raises(SourceMissing, match=r"127\.0\.0\.1, which is no public address"):
        inspect(uri, SourceRules(), web({}))


@pytest.mark.parametrize("bytes_at_once", [b"x", b""], ids=["drips", "is silent"])
def test_a_server_that_gives_too_little_is_left_at_the_deadline(
    tmp_path: Path, bytes_at_once: bytes
) -> None:
    hung_up, stop = threading.Event(), threading.Event()

    class Drips(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(50 * MIB))
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            try:
                while not stop.wait(0.05):
                    self.wfile.write(bytes_at_once)
                    if not bytes_at_once and not self.connection.recv(1):
                        raise ConnectionResetError
            except OSError:
                hung_up.set()

        def log_message(self, *args: object) -> None:
            pass

    with Served("127.0.0.1", Drips) as address:
        with pytest.raises(StagingTimedOut, match=r"within 3\.0 s, all of the job's max_runtime"):
            stage(tmp_path, f"{address}/set.bin", limit_s=3.0)
        assert hung_up.wait(30.0)  # whoever read is gone
        stop.set()
    assert list((tmp_path / "cache" / "tmp").iterdir()) == []
