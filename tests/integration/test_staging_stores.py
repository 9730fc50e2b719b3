"""Data of a storage of objects, read with the credentials that are named for it and no other."""

from pathlib import Path
from typing import Any

import boto3
import pytest
from pydantic import SecretStr

from headway.clock import SystemClock
from headway.model.container_policy import ContainerPolicy
from headway.model.job_parts import Dataset
from headway.settings import Settings
from headway.site import Site
from headway.staging.cache import DataCache
from headway.staging.errors import SourceMissing
from headway.staging.reader import Credentials, UserReader
from headway.units import MIB
from tests.ports.staging import MemoryIndex
from tests.support.postgresql import with_ledger
from tests.support.s3 import BUCKET

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
    return b"".join(each.read_bytes() for each in staged.path.rglob("*") if each.is_file())


def test_a_bucket_is_read_with_what_is_named_for_it(tmp_path: Path, site_keys: Any) -> None:
    key = {"key": "lab", "secret": "labs"}
    rules = {f"s3://{LAB}": "lab-s3"}
    assert stage(tmp_path, f"s3://{LAB}/sets", rules, {**key, **site_keys}) == b"a,b\n"


@pytest.mark.parametrize("uri", [STORE, f"s3://{BUCKET}", f"{STORE}/vision/run/outputs"])
def test_the_sites_store_is_data_to_nobody(tmp_path: Path, site_keys: Any, uri: str) -> None:
    """Also where somebody has named credentials for it."""
    with pytest.raises(SourceMissing, match="headway outputs"):
        stage(tmp_path, uri, {f"s3://{BUCKET}": "lab-s3"}, {"key": "k", "secret": "s", **site_keys})


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
