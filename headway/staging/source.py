"""Where a data set comes from: what is there, which version, and how to read it.

A local file or directory is read directly, so that no symbolic link can lead
out of it; everything else through fsspec. Each source is inspected
before and after the copy: two results that differ mean that it changed.

What is here runs in a process that has become the job's user
(`headway.staging.child`); only that process opens what a job names.
"""

import errno
import hashlib
import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, BinaryIO, cast

from fsspec.core import url_to_fs

from headway.errors import HeadwayError, InvalidInput
from headway.model.address import local_path
from headway.staging.errors import SourceChanged, SourceMissing, SourceUnreachable
from headway.staging.rules import SourceRules
from headway.trees import lets_pass
from headway.units import MIB

FIELD = "dataset.uri"
CHUNK_BYTES = 4 * MIB
_MISSING = (
    FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError,
    ValueError, ImportError,  # an unknown protocol, or one whose library is not installed
)  # fmt: skip
_STAMPS = (
    "size", "etag", "ETag", "md5", "md5Hash", "Content-MD5", "Digest", "checksum", "crc32c",
    "generation", "version_id", "VersionId", "mtime", "LastModified", "last_modified", "updated",
    "created", "Last-Modified",
)  # fmt: skip
"""What fsspec's file systems call the properties that change when a file does."""
_LONGEST_NAME = 255
"""Bytes of one part of a path, on any file system that a cache lies on."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a data set."""

    name: str
    """Path relative to the data set, with ``/``."""
    address: str
    """What its file system opens."""
    size_bytes: int | None
    """None where the storage does not say."""
    inode: tuple[int, int] | None = None
    """Device and inode of a local file: what is opened later must be the same."""


@dataclass(frozen=True, slots=True)
class Source:
    """A data set as it was when it was inspected."""

    uri: str
    is_directory: bool
    files: tuple[SourceFile, ...]
    """In the order of their names' bytes."""
    identity: str
    """Differs when the data may differ: sizes, times, ETags, versions."""
    file_system: Any = None
    """fsspec's, or None for this machine's own files."""

    @property
    def size_bytes(self) -> int | None:
        """Of all files; None where the storage does not say."""
        total = 0
        for each in self.files:
            if each.size_bytes is None:
                return None
            total += each.size_bytes
        return total

    def key(self, sha256: str | None, user: tuple[int, int] | None = None) -> str:
        """Name of this version of the data in the cache of *user*, 64 hex digits."""
        text = json.dumps([self.uri, sha256, self.is_directory, self.identity, user])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def open(self, file: SourceFile, rules: SourceRules) -> BinaryIO:
        """*file*, to be read from its beginning to its end.

        Raises:
            SourceMissing: It is gone, or may not be read.
            SourceUnreachable: Its storage does not answer.
            SourceChanged: Another file has taken its place.
        """
        with reading(self.uri):
            if file.inode is None:
                return _open_remote(self.file_system, file)
            return _open_local(self.uri, file, rules)

    def probe(self, file: SourceFile, rules: SourceRules) -> None:
        """Read the first byte of *file*, and of other storage no more. Raises as `open`."""
        with reading(self.uri):
            opened = (
                _open_remote(self.file_system, file, cache_type="none")
                if file.inode is None
                else _open_local(self.uri, file, rules)
            )
            with opened:
                opened.read(1)


def inspect(
    uri: str,
    rules: SourceRules,
    file_system: Any = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Source:
    """What is at *uri* now.

    Args:
        uri: As `headway.model.address` allows it.
        rules: What may be read.
        file_system: fsspec's, where its options alone do not make it.
        options: What fsspec is given for any other storage: its credentials.

    Raises:
        SourceMissing: Nothing is there, it may not be read, or a symbolic
            link leads out of it.
        SourceUnreachable: The storage does not answer.
    """
    with reading(uri):
        path = local_path(uri)
        if path is not None:
            return _inspect_local(uri, Path(path), rules)
        if file_system is None:
            return _inspect_remote(uri, *url_to_fs(uri, **options))
        return _inspect_remote(uri, file_system, file_system._strip_protocol(uri))  # noqa: SLF001


def nothing_at(uri: str, user: str = "") -> bool:
    """Whether *uri* is a path of this machine at which *user* can see that nothing is.

    What may not be inspected, and any other storage, may hold it.

    Args:
        uri: As `headway.model.address` allows it.
        user: ``uid:gid`` of who would read it; empty for this process's own.
    """
    path = local_path(uri)
    if path is None or (user and _is_hidden(path, user)):
        return False
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def _is_hidden(path: str, user: str) -> bool:
    """Whether a folder on the way to *path*, or to what its links lead to, lets *user* not pass."""
    uid, gid = map(int, user.split(":"))
    for folder in {*Path(path).parents, *Path(os.path.realpath(path)).parents}:
        with suppress(OSError):  # it is not there, which those above it tell whom they let pass
            if not lets_pass(folder.stat(), (uid, gid)):
                return True
    return False


def empty(uri: str) -> InvalidInput:
    """The error for a data set without a byte of data."""
    return InvalidInput(FIELD, uri, "nothing is in it; give a data set that has data")


@contextmanager
def reading(uri: str) -> Iterator[None]:
    """Make ours what goes wrong while *uri* is read."""
    try:
        yield
    except HeadwayError:
        raise
    except _MISSING as error:
        cause = error.__cause__  # fsspec's http calls a refused connection "not found"
        if isinstance(cause, OSError) and not isinstance(cause, _MISSING):
            raise SourceUnreachable(uri, _words(cause)) from error
        raise SourceMissing(uri, _words(error)) from error
    except Exception as error:  # every fsspec file system has exceptions of its own
        raise SourceUnreachable(uri, _words(error)) from error


def _words(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:200] or type(error).__name__


# --- this machine's own files ---


def _inspect_local(uri: str, path: Path, rules: SourceRules) -> Source:
    root = path.resolve(strict=True)
    if why := rules.why_not(str(root)):
        raise SourceMissing(uri, why)
    found = root.stat()
    if stat.S_ISREG(found.st_mode):
        _may_read(root)
        entries = [(path.name, root, found)]
    elif stat.S_ISDIR(found.st_mode):
        entries = sorted(_walk(uri, root, rules), key=lambda entry: os.fsencode(entry[0]))
    else:
        raise SourceMissing(uri, "it is neither a file nor a directory")
    identity = hashlib.sha256()
    for name, _, each in entries:
        stamp = f"{each.st_size} {each.st_mtime_ns} {each.st_ctime_ns} {each.st_ino}\n"
        identity.update(os.fsencode(name) + b"\0" + stamp.encode())
    return Source(
        uri=uri,
        is_directory=stat.S_ISDIR(found.st_mode),
        files=tuple(
            SourceFile(name, str(real), each.st_size, (each.st_dev, each.st_ino))
            for name, real, each in entries
        ),
        identity=identity.hexdigest(),
    )


def _walk(uri: str, root: Path, rules: SourceRules) -> Iterator[tuple[str, Path, os.stat_result]]:
    def fail(error: OSError) -> None:
        raise error  # os.walk would pass over a directory that may not be read

    for folder, folders, names in os.walk(root, onerror=fail):
        if why := rules.why_not(folder):
            raise SourceMissing(uri, why)
        for name in folders:
            if (Path(folder) / name).is_symlink():
                raise SourceMissing(uri, f"{name} in it is a symbolic link to a directory")
        for name in names:
            path = Path(folder) / name
            real = path.resolve(strict=True) if path.is_symlink() else path
            if not real.is_relative_to(root):
                raise SourceMissing(uri, f"symbolic link {name} in it leads out, to {real}")
            found = real.lstat()
            if not stat.S_ISREG(found.st_mode):
                raise SourceMissing(uri, f"{name} in it is no regular file")
            if why := rules.why_not(str(real)):
                raise SourceMissing(uri, why)
            _may_read(real)
            yield path.relative_to(root).as_posix(), real, found


def _may_read(path: Path) -> None:
    """Raise for a file that this process may not open, before anything of its set is copied."""
    if not os.access(path, os.R_OK):
        raise PermissionError(errno.EACCES, f"{path.name}: {os.strerror(errno.EACCES)}")


def _open_local(uri: str, file: SourceFile, rules: SourceRules) -> BinaryIO:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    opened = os.fdopen(os.open(file.address, flags), "rb", buffering=0)
    try:
        found = os.fstat(opened.fileno())
        if (found.st_dev, found.st_ino) != file.inode:
            raise SourceChanged(uri, f"{file.name} was replaced")
        # What is really open, by the kernel's own word: a directory on the way may be a link now.
        real = _opened(opened.fileno())
        if real is not None and real != file.address:
            raise SourceChanged(uri, f"{file.name} was moved")
        if why := rules.why_not(file.address):
            raise SourceMissing(uri, why)
    except BaseException:
        opened.close()
        raise
    return opened


def _opened(descriptor: int) -> str | None:
    """Path of an open file; None where the system does not tell."""
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return None


# --- everything else ---


def _inspect_remote(uri: str, file_system: Any, path: str) -> Source:
    file_system.invalidate_cache()
    root = file_system.info(path)
    is_directory = root["type"] == "directory"
    if is_directory:
        # Consoles of buckets make an empty object for each folder.
        found = {
            name: info
            for name, info in file_system.find(path, detail=True).items()
            if not name.endswith("/") or info.get("size")
        }
        if link := next((n for n, info in found.items() if info.get("type") == "link"), ""):
            raise SourceMissing(uri, f"{PurePosixPath(link).name} in it is a symbolic link")
        prefix = path.rstrip("/") + "/"
        named = {_relative(uri, name, prefix): info for name, info in found.items()}
        _check_apart(uri, named, len(found))
    else:
        named = {_relative(uri, PurePosixPath(path).name or "data", ""): root}
    ordered = sorted(named.items(), key=lambda entry: entry[0].encode("utf-8", "surrogateescape"))
    stamps = [[name, *(str(info.get(stamp)) for stamp in _STAMPS)] for name, info in ordered]
    if not is_directory and "mtime" not in root:  # else it may have the time of the last reading
        stamps.append(["ukey", file_system.ukey(path)])
    return Source(
        uri=uri,
        is_directory=is_directory,
        files=tuple(SourceFile(name, info["name"], info.get("size")) for name, info in ordered),
        identity=hashlib.sha256(json.dumps(stamps).encode()).hexdigest(),
        file_system=file_system,
    )


def _open_remote(file_system: Any, file: SourceFile, **options: Any) -> BinaryIO:
    protocols = file_system.protocol
    web = "http" in ([protocols] if isinstance(protocols, str) else protocols)
    # A web server need not know ranges; we read from beginning to end anyway.
    options |= {"block_size": 0} if web else {}
    return cast("BinaryIO", file_system.open(file.address, "rb", **options))


def _relative(uri: str, name: str, prefix: str) -> str:
    """*name* below *prefix*; refused where it could be written elsewhere."""
    stored = stored_name(name.removeprefix(prefix))
    if stored is None:
        named = name.removeprefix(prefix)
        raise SourceMissing(uri, f"it names a file {named!r}, which cannot be stored")
    return stored


def _check_apart(uri: str, names: Collection[str], found: int) -> None:
    """Refuse what a bucket can have and a folder cannot: ``a//b`` beside ``a/b``, or ``a``."""
    folders = {str(above) for name in names for above in PurePosixPath(name).parents}
    both = min(folders.intersection(names), default="")
    if both:
        cause = f"it has a file {both!r}, and others below that: no folder can have both"
        raise SourceMissing(uri, cause)
    if len(names) < found:
        raise SourceMissing(uri, "two of its files differ in slashes alone: no folder has both")


def stored_name(name: str) -> str | None:
    """*name* as a path below its set's folder; None where it would lie elsewhere, or nowhere."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        return None
    try:
        longest = max(len(os.fsencode(part)) for part in parts)
    except UnicodeEncodeError:
        return None
    return "/".join(parts) if longest <= _LONGEST_NAME else None
