"""The site's store: an address of fsspec's to which ended runs' logs and outputs are brought."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from fsspec.core import url_to_fs

from headway.errors import StoreFailed, shown

READ_BYTES = 4 << 20


class Store:
    """Files by their keys, such as ``vision/<run>/outputs/model.pt``, whatever stores them."""

    def __init__(self, url: str) -> None:
        """The store at *url*, as fsspec reads it; nothing is asked of it yet.

        Raises:
            StoreFailed: No file system of fsspec's has such addresses.
        """
        self.url = url
        with self._ours("it cannot be opened"):
            self._files, root = url_to_fs(url)
        self._root = str(root).rstrip("/")

    def put(self, key: str, pieces: Iterable[bytes]) -> None:
        """Have a file of *pieces* under *key*, in the place of one before."""
        with self._ours(f"{key} was not written"):
            path = self._path(key)
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            with self._files.open(path, "wb") as file:
                for piece in pieces:
                    file.write(piece)

    def pieces(self, key: str, start: int = 0) -> Iterator[bytes]:
        """What is under *key* from *start* on, read anew, not from any cache."""
        with self._ours(f"{key} was not read"), self._opened(key) as file:
            file.seek(start)
            while data := cast("bytes", file.read(READ_BYTES)):
                yield data

    def read(self, key: str, start: int = 0, length: int = -1) -> bytes:
        """At most *length* bytes under *key* from *start* on; all of it with -1."""
        with self._ours(f"{key} was not read"), self._opened(key) as file:
            file.seek(start)
            return cast("bytes", file.read(length))

    def remove(self, key: str) -> None:
        """Remove all below *key*. Idempotent."""
        with self._ours(f"{key} was not removed"):
            path = self._path(key)
            self._files.invalidate_cache()
            if self._files.exists(path):
                self._files.rm(path, recursive=True)

    def _opened(self, key: str) -> Any:
        return self._files.open(self._path(key), "rb", cache_type="none")

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    @contextmanager
    def _ours(self, what: str) -> Iterator[None]:
        """Make ours what goes wrong: every file system of fsspec's has errors of its own."""
        try:
            yield
        except StoreFailed:
            raise
        except Exception as error:
            cause: Any = str(error) or type(error).__name__
            raise StoreFailed(self.url, f"{what}: {shown(cause, 200)[1:-1]}") from error
