"""Data sets from a web server that knows neither ranges nor mercy."""

import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headway.errors import SourceMissing, SourceUnreachable
from headway.model.job import Dataset
from headway.staging.cache import DataCache, StagedDataset
from headway.testing.staging import MemoryIndex
from headway.units import MIB

pytest.importorskip("aiohttp", reason="fsspec reads http only where aiohttp is installed")


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

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def stage(tmp_path: Path, uri: str) -> StagedDataset:
    cache = DataCache(tmp_path / "cache", 100 * MIB, MemoryIndex(), node="n")
    return cache.stage(Dataset(uri=uri), "r", progress=lambda done, total: None)


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
