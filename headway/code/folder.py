"""A folder of code on the machine of whoever submits a job: what of it travels, and its commit.

What git tracks, and what its ignore files let through, is git's own to say: it is asked. A folder
that is in no repository is asked about with an empty one beside it.
"""

import hashlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from headway.errors import InvalidInput, shown
from headway.model.code import CODE, FIELD, MOST_DIFF_BYTES, CodeManifest
from headway.model.sent_files import Manifest, SentFile, check_path

Sent = Callable[[int, int], None]
"""Is told how many bytes have been sent, and of how many."""
_LIST_S = 120.0
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_CUT = "\n[cut: the diff goes on]\n"
_MOST_NESTED = 16
INCLUDE = ".headwayinclude"
"""Patterns, as in .gitignore, of files that travel although it leaves them out: prepared data."""
_CACHES = frozenset({"__pycache__", "venv", "env", "node_modules"})
NOTES = ".headway-outputs"
"""Folder in one that outputs are fetched into: which run's they are, and parts of files."""
_STAYS = ("/node.id", f"/{NOTES}/run")
"""What a folder has that never travels: a home of headway's, with its keys; fetched outputs."""


@dataclass(frozen=True, slots=True)
class PackedFolder:
    """A folder as it was read."""

    folder: Path
    manifest: Manifest

    def chunks(self, wanted: set[str]) -> Iterator[bytes]:
        """The content of those chunks that are *wanted*, each once.

        Raises:
            InvalidInput: A file was changed meanwhile.
        """
        left = set(wanted)
        for file in self.manifest.files:
            for number, sha256 in enumerate(file.chunks):
                if sha256 not in left:
                    continue
                limits = self.manifest.limits
                data = _chunk(self.folder / file.path, number, limits.chunk_bytes)
                if hashlib.sha256(data).hexdigest() != sha256:
                    allowed = "it was changed while it was sent: send it again"
                    raise InvalidInput(limits.field, file.path, allowed)
                left.discard(sha256)
                yield data


def pack(folder: Path) -> PackedFolder:
    """*folder* with what of it travels.

    Raises:
        InvalidInput: It is no folder, too much would travel, or something that cannot.
    """
    if not folder.is_dir():
        raise InvalidInput(FIELD, str(folder), "no folder is there; give one, such as .")
    root = folder.resolve()
    if root in (Path.home().resolve(), Path(root.anchor)):
        # Keys, passwords and the rest of an account would travel with the program.
        allowed = "a program is sent with its folder, and this one holds more than a program: "
        raise InvalidInput(FIELD, str(root), allowed + "put it in a folder of its own")
    names = set(_names(root))
    stays = tuple(
        name.removesuffix(mark) + "/" for name in names for mark in _STAYS if name.endswith(mark)
    )
    names = {name for name in names if not name.startswith(stays)}
    files = [found for name in sorted(names) if (found := _file(root, name)) is not None]
    return PackedFolder(root, CodeManifest.of(files, **_provenance(root)))


def _names(folder: Path, depth: int = 0) -> Iterator[str]:
    """Paths below *folder* of all that is to travel; of a repository in it, too."""
    if depth > _MOST_NESTED:
        raise InvalidInput(FIELD, str(folder), "repositories lie in each other too deep")
    listed = _listed(folder, "--exclude-standard", tracked=True)
    if depth == 0:
        listed |= _included(folder)
    for name in sorted(listed):
        below = folder / name
        if below.is_dir() and not below.is_symlink():
            yield from (f"{name.rstrip('/')}/{each}" for each in _names(below, depth + 1))
        else:
            yield name


def left_behind(folder: Path) -> list[str]:
    """Files and folders that stay behind as .gitignore says, but for caches and hidden ones."""
    stays = _listed(folder, "--ignored", "--exclude-standard", "--directory")
    included = _included(folder)
    folders = tuple(name for name in stays if name.endswith("/"))
    return sorted(
        name
        for name in stays
        if not any(name != each and name.startswith(each) for each in folders)
        and not any(part.startswith(".") or part in _CACHES for part in PurePath(name).parts)
        and not name.endswith((".pyc", ".egg-info/"))
        and not any(each == name or each.startswith(name) for each in included)
    )


def _included(folder: Path) -> set[str]:
    """What travels although .gitignore leaves it out."""
    patterns = folder / INCLUDE
    return (
        _listed(folder, "--ignored", f"--exclude-from={patterns}") if patterns.is_file() else set()
    )


def _listed(folder: Path, *asked: str, tracked: bool = False) -> set[str]:
    """What git lists of the files that it does not track, and those that it tracks."""
    wanted = ("ls-files", "-z", "--others", *asked)
    if _git(folder, "rev-parse", "--git-dir", check=False) is not None:
        found = _git(folder, *wanted, *(("--cached",) if tracked else ()))
    else:
        with tempfile.TemporaryDirectory() as empty:
            beside = (f"--git-dir={empty}", f"--work-tree={folder}")
            _git(folder, f"--git-dir={empty}", "init", "--quiet", "--bare")
            found = _git(folder, *beside, "-c", "core.bare=false", *wanted)
    return set(filter(None, (found or "").split("\0")))


def _file(root: Path, name: str) -> SentFile | None:
    """One file; None where git tracks it and it is not there.

    A link to a file of the folder travels as a file; no other link does.
    """
    check_path(name, FIELD)
    path = root / name
    try:
        real = path.resolve(strict=True)
    except FileNotFoundError:
        if path.is_symlink():
            raise _no_link(name, "leads nowhere") from None
        return None
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        raise _no_link(name, f"cannot be followed ({error})") from None
    if not real.is_relative_to(root):
        raise _no_link(name, "leads out of the folder")
    seen = real.stat()
    if not stat.S_ISREG(seen.st_mode):
        if path.is_symlink():
            raise _no_link(name, "leads to no file")
        raise InvalidInput(FIELD, name, "it is no regular file; leave it out by .gitignore")
    size, chunks = 0, []
    for data in _content(real):
        size += len(data)
        chunks.append(hashlib.sha256(data).hexdigest())
    return SentFile(name, size, tuple(chunks), bool(seen.st_mode & stat.S_IXUSR))


def _no_link(name: str, why: str) -> InvalidInput:
    allowed = f"the link {why}; leave it out by .gitignore, or bring data as a dataset"
    return InvalidInput(FIELD, name, allowed)


def _content(path: Path) -> Iterator[bytes]:
    with os.fdopen(os.open(path, _OPEN), "rb") as file:
        while data := file.read(CODE.chunk_bytes):
            yield data


def _chunk(path: Path, number: int, chunk_bytes: int) -> bytes:
    try:
        with os.fdopen(os.open(path, _OPEN), "rb") as file:
            file.seek(number * chunk_bytes)
            return file.read(chunk_bytes)
    except FileNotFoundError:
        return b""


def _provenance(folder: Path) -> dict[str, str]:
    """The commit that *folder* is at, and what its tracked files differ in from that."""
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD", check=False)
    if not commit:
        return {}
    asked = (
        "diff",
        "HEAD",
        "--relative",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--",
        ".",
    )
    diff = _git(folder, *asked, check=False) or ""
    text = diff.encode(errors="replace")
    if len(text) > MOST_DIFF_BYTES:
        text = text[: MOST_DIFF_BYTES - len(_CUT)].rpartition(b"\n")[0] + _CUT.encode()
    return {"commit": commit.strip(), "diff": text.decode(errors="ignore")}


def _git(folder: Path, *asked: str, check: bool = True) -> str | None:
    """What git says; None where it fails and *check* is not set.

    A repository's own settings must not start programs here.
    """
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *asked]
    # Where a hook of git's has started this, its variables mean another repository.
    env = {key: text for key, text in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=env | {"LC_ALL": "C"},
            timeout=_LIST_S,
            check=False,
        )
    except FileNotFoundError:
        allowed = "git says which files travel, and is not installed here: install it"
        raise InvalidInput(FIELD, str(folder), allowed) from None
    except subprocess.TimeoutExpired:
        allowed = f"git did not list its files within {_LIST_S:g} s: give a smaller folder"
        raise InvalidInput(FIELD, str(folder), allowed) from None
    if done.returncode == 0:
        return os.fsdecode(done.stdout)
    words = os.fsdecode(done.stderr)
    # Of a repository that git does not trust, nothing may be told as if there were none.
    if not check and "dubious ownership" not in words:
        return None
    raise InvalidInput(FIELD, str(folder), f"git cannot list its files ({shown(words, 200)})")
