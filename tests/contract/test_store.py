"""What any store of the site's does, whatever keeps the bytes."""

from pathlib import Path
from uuid import uuid4

import pytest

from headway.errors import StoreFailed
from headway.staging.store import READ_BYTES, Store
from tests.support.s3 import BUCKET


@pytest.fixture(params=["file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "s3":
        for name, value in request.getfixturevalue("s3").items():
            monkeypatch.setenv(name, value)
        return Store(f"s3://{BUCKET}/{uuid4()}")
    place = tmp_path / "store" if request.param == "file" else f"/{uuid4()}"
    return Store(f"{request.param}://{place}")


def test_what_was_put_is_there_from_any_byte_on(store: Store) -> None:
    data = bytes(range(256)) * (READ_BYTES // 128)
    store.put("team/run/outputs/a", [data[:100], data[100:]])
    assert b"".join(store.pieces("team/run/outputs/a")) == data
    assert store.read("team/run/outputs/a", 7, 5) == data[7:12]
    assert b"".join(store.pieces("team/run/outputs/a", len(data) - 3)) == data[-3:]
    assert store.read("team/run/outputs/a", len(data), 5) == b""


def test_what_is_put_again_takes_the_place_of_what_was(store: Store) -> None:
    store.put("key", [b"a longer one than the next"])
    store.put("key", [b"short"])
    assert store.read("key") == b"short"
    store.put("empty", [])
    assert store.read("empty") == b""


@pytest.mark.parametrize(
    "key", ["a%0Ab", "%FF%FE", "a%20b%25", "~", "-rf", "%2A%3F%5B%5D", "x%23y"]
)
def test_any_quoted_name_is_one_of_its_own(store: Store, key: str) -> None:
    store.put(f"run/outputs/{key}", [key.encode()])
    store.put("run/outputs/other", [b"other"])
    assert store.read(f"run/outputs/{key}") == key.encode()


def test_what_is_removed_is_gone_and_the_rest_stays(store: Store) -> None:
    store.put("team/one/outputs/a", [b"a"])
    store.put("team/two/outputs/a", [b"a"])
    store.remove("team/one")
    store.remove("team/one")
    with pytest.raises(StoreFailed):
        store.read("team/one/outputs/a")
    assert store.read("team/two/outputs/a") == b"a"


def test_what_breaks_off_or_is_not_there_is_said_without_a_password(store: Store) -> None:
    with pytest.raises(StoreFailed, match="nobody"):
        store.read("nobody")
    with pytest.raises(StoreFailed) as caught:
        Store("nothing-such://user:password@host/place")
    assert "password" not in str(caught.value)
