"""What of a bucket can be stored in a folder."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from headway.staging.errors import SourceMissing
from headway.staging.source import _inspect_remote, stored_name


class Bucket:
    """As fsspec lists one."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def invalidate_cache(self) -> None:
        """Nothing is kept."""

    def info(self, path: str) -> Mapping[str, Any]:
        return {"type": "directory", "name": path}

    def find(self, path: str, *, detail: bool) -> Mapping[str, Any]:
        assert detail
        every = {f"{path}/{name}": not name.endswith("/") for name in self.names}
        return {name: {"name": name, "size": int(has_data)} for name, has_data in every.items()}


def names_in(*names: str) -> Sequence[str]:
    return [each.name for each in _inspect_remote("s3://b/set", Bucket(*names), "b/set").files]


def test_a_bucket_that_is_like_a_folder_is_one() -> None:
    assert names_in("b/c", "b/", "a", "b/d") == ["a", "b/c", "b/d"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("a", "a/b"), "it has a file 'a', and others below that"),
        (("a/b", "a//b"), "two of its files differ in slashes alone"),
        (("a/" + "x" * 256,), "which cannot be stored"),
        (("\ud800",), "which cannot be stored"),
    ],
)
def test_what_no_folder_can_have_is_said_of_the_data_and_not_of_the_disk(
    names: Sequence[str], said: str
) -> None:
    with pytest.raises(SourceMissing, match=said):
        names_in(*names)


def test_names_that_a_file_system_takes() -> None:
    assert stored_name("a/" + "\u00e9" * 127) is not None
    assert stored_name("a/" + "\u00e9" * 128) is None
    assert stored_name("\udcff") == "\udcff", "as a name that is not UTF-8 is written"
