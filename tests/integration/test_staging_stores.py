"""Data of a storage of objects, read with the credentials that are named for it and no other."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import asyncssh
import boto3
import httpx
import pytest
from fsspec.asyn import sync
from gcp_storage_emulator.server import create_server
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.model.container_policy import ContainerPolicy
from headway.model.job_parts import Dataset
from headway.settings import Settings
from headway.site import Site
from headway.staging import child
from headway.staging.cache import DataCache
from headway.staging.errors import SourceMissing, SourceUnreachable
from headway.staging.reader import Credentials, UserReader
from headway.staging.rules import SourceRules
from headway.staging.source import inspect, reading
from headway.units import MIB
from tests.ports.staging import MemoryIndex
from tests.support.postgresql import with_ledger
from tests.support.s3 import BUCKET
from tests.support.site import free_port

LAB = "lab-data"
STORE = f"s3://{BUCKET}/site"


@pytest.fixture
def site_keys(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A process with the keys of the site's store in its environment and in its home."""
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    keys = tmp_path / "home/.aws/credentials"
    keys.parent.mkdir(parents=True)
    keys.write_text("[default]\naws_access_key_id = headway\naws_secret_access_key = secret\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    client = boto3.client("s3", endpoint_url=s3["AWS_ENDPOINT_URL"])
    client.create_bucket(Bucket=LAB)
    client.put_object(Bucket=LAB, Key="sets/a.csv", Body=b"a,b\n")
    client.put_object(Bucket=BUCKET, Key="site/vision/run/outputs/model", Body=b"theirs")
    return {"client_kwargs": {"endpoint_url": s3["AWS_ENDPOINT_URL"]}}


def stage(tmp_path: Path, uri: str, rules: dict[str, str], secret: Any = None) -> bytes:
    asked: dict[str, Any] = {"lab-s3": secret}
    reader = UserReader(credentials=Credentials(rules, STORE, asked.__getitem__))
    cache = DataCache(tmp_path / "cache", 100 * MIB, MemoryIndex(), node="n", reader=reader)
    staged = cache.stage(Dataset(uri=uri), "r", progress=lambda done, total: None)
    return b"".join(
        each.read_bytes() for each in (staged.path, *staged.path.rglob("*")) if each.is_file()
    )


def test_a_bucket_is_read_with_what_is_named_for_it(tmp_path: Path, site_keys: Any) -> None:
    key = {"key": "lab", "secret": "labs"}
    rules = {f"s3://{LAB}": "lab-s3"}
    assert stage(tmp_path, f"s3://{LAB}/sets", rules, {**key, **site_keys}) == b"a,b\n"


@pytest.mark.parametrize("uri", [STORE, f"s3://{BUCKET}", f"{STORE}/vision/run/outputs"])
def test_the_sites_store_is_data_to_nobody(tmp_path: Path, site_keys: Any, uri: str) -> None:
    """Also where somebody has named credentials for it."""
    with pytest.raises(SourceMissing, match="headway outputs"):
        stage(tmp_path, uri, {f"s3://{BUCKET}": "lab-s3"}, {"key": "k", "secret": "s", **site_keys})


@dataclass(frozen=True)
class Server:
    """One that speaks SFTP, and lets in who has this key."""

    uri: str
    block: Mapping[str, str]


class Silent(asyncssh.SFTPServer):
    """Lets in, and does not answer what `silent_at` names."""

    silent_at = ""
    opened: ClassVar[list[Any]] = []

    async def _answers(self, what: str) -> None:
        if what == self.silent_at:
            await asyncio.sleep(3600)

    async def stat(self, path: bytes) -> Any:  # type: ignore[override]
        await self._answers("stat")
        return super().stat(path)

    async def open(self, path: bytes, pflags: int, attrs: Any) -> Any:  # type: ignore[override]
        await self._answers("open")
        opened = super().open(path, pflags, attrs)
        self.opened.append(opened)
        return opened

    async def read(self, file_obj: object, offset: int, size: int) -> Any:  # type: ignore[override]
        await self._answers("read")
        return super().read(file_obj, offset, size)

    async def close(self, file_obj: object) -> None:  # type: ignore[override]
        await self._answers("close")
        super().close(file_obj)


@pytest.fixture
def sftp(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "served/sets/below"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_bytes(b"a,b\n" * 1_000_000)
    own, theirs = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    keys = asyncssh.import_authorized_keys(theirs.export_public_key().decode())
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()

    async def listen() -> asyncssh.SSHAcceptor:
        def files(channel: Any) -> asyncssh.SFTPServer:
            return Silent(channel, chroot=str(tmp_path / "served").encode())

        return await asyncssh.listen(
            "127.0.0.1", 0, server_host_keys=[own], authorized_client_keys=keys, sftp_factory=files
        )

    async def end() -> None:
        listening.close()
        await listening.wait_closed()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0.1)  # connections that are closed go
        while Silent.opened:
            Silent.opened.pop().close()

    listening = asyncio.run_coroutine_threadsafe(listen(), loop).result(30)
    block = {
        "username": "ada",
        "private_key": theirs.export_private_key().decode(),
        "host_key": own.export_public_key().decode(),
    }
    yield Server(f"sftp://127.0.0.1:{listening.get_port()}", block)
    asyncio.run_coroutine_threadsafe(end(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_server_of_sftp_is_read_with_the_key_that_is_named_for_it(
    sftp: Server, tmp_path: Path
) -> None:
    rules = {sftp.uri: "lab-s3"}
    for path in ("sets", "sets/below/a.csv"):
        assert stage(tmp_path, f"{sftp.uri}/{path}", rules, sftp.block) == b"a,b\n" * 1_000_000
    with pytest.raises(SourceMissing, match="No such file"):
        stage(tmp_path, f"{sftp.uri}/none", rules, sftp.block)
    (tmp_path / "served/sets/link").symlink_to("below")
    with pytest.raises(SourceMissing, match="link in it is a symbolic link"):
        stage(tmp_path, f"{sftp.uri}/sets", rules, sftp.block)


def test_no_server_of_sftp_is_spoken_to_but_the_one_that_an_operator_names(
    sftp: Server, tmp_path: Path
) -> None:
    rules, other = {sftp.uri: "lab-s3"}, asyncssh.generate_private_key("ssh-ed25519")
    with pytest.raises(SourceMissing, match="no Secret block is named"):
        stage(tmp_path, f"{sftp.uri}/sets", {})
    unknown = {**sftp.block, "host_key": other.export_public_key().decode()}
    with pytest.raises(SourceUnreachable, match=r"[Hh]ost key"):
        stage(tmp_path, f"{sftp.uri}/sets", rules, unknown)
    strange = {**sftp.block, "private_key": other.export_private_key().decode()}
    with pytest.raises((SourceMissing, SourceUnreachable), match="Permission denied"):
        stage(tmp_path, f"{sftp.uri}/sets", rules, strange)
    unreadable = {**sftp.block, "private_key": "of-the-team-alone"}
    with pytest.raises((SourceMissing, SourceUnreachable)) as raised:
        stage(tmp_path, f"{sftp.uri}/sets", rules, unreadable)
    assert "of-the-team-alone" not in str(raised.value)


def _read(uri: str, file_system: Any) -> None:
    with reading(uri):
        source = inspect(uri, SourceRules(), file_system)
        with source.open(source.files[0], SourceRules()) as opened:
            assert opened.read(4) == b"a,b\n"


@pytest.mark.parametrize("silent_at", ["stat", "open", "read", "close"])
def test_a_silent_server_of_sftp_is_not_waited_for_without_end(
    sftp: Server, monkeypatch: pytest.MonkeyPatch, silent_at: str
) -> None:
    monkeypatch.setattr(Silent, "silent_at", silent_at)
    monkeypatch.setattr(child, "_STALL_S", 0.5)
    uri = f"{sftp.uri}/sets/below/a.csv"
    made = child._sftp(uri)(sftp.block)
    try:
        with pytest.raises(SourceUnreachable, match="no answer for"):
            _read(uri, made)
    finally:
        made.loop.call_soon_threadsafe(made.client.abort)
        sync(made.loop, made.client.wait_closed)


def test_a_bucket_of_googles_is_read(tmp_path: Path) -> None:
    server = create_server("127.0.0.1", port := free_port(), in_memory=True, default_bucket="lab")
    server.start()
    try:
        url = f"http://127.0.0.1:{port}"
        named = {"uploadType": "media", "name": "sets/a.csv"}
        httpx.post(f"{url}/upload/storage/v1/b/lab/o", params=named, content=b"a,b\n")
        rules, block = {"gs://lab": "lab-s3"}, {"endpoint_url": url, "project": "lab"}
        assert stage(tmp_path, "gs://lab/sets", rules, block) == b"a,b\n"
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("uri", "extra", "package"),
    [("abfs://lab/sets", "az", "adlfs"), ("hf://datasets/lab/sets", "hf", "huggingface_hub")],
)
def test_what_nothing_reads_here_says_what_does(
    tmp_path: Path, uri: str, extra: str, package: str
) -> None:
    if find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(SourceMissing, match=rf"pip install 'headway\[{extra}\]'"):
        stage(tmp_path, uri, {})


def test_a_store_in_a_folder_is_data_to_nobody(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.mktemp("store")
    (store / "vision").mkdir()
    (store / "vision/model").write_bytes(b"theirs")
    (store.parent / "link").symlink_to(store)
    url = SecretStr(f"file://{store.parent}/link")
    site = Site(Settings(home=with_ledger(tmp_path), store_url=url, node="here"), SystemClock())
    cache = site.cache_for("", ContainerPolicy(mount_roots=(store.parent,)))
    for uri in (str(store), f"{store}/vision/model", f"file://{store.parent}/link/vision"):
        with pytest.raises(SourceMissing, match="belongs to headway"):
            cache.stage(Dataset(uri=uri), "r", progress=lambda done, total: None)
