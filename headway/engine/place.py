"""The shared folder: what is handed to an engine's machines, and what their wrapper leaves there.

ROOT/wrapper-….pyz              `wrapper` and its parts as they are in this version
ROOT/KEY/request.json, job.sh   what to run; what the engine is given
ROOT/KEY/lock                   held by who submits the job
ROOT/KEY/group                  of one that was submitted with others: under which key
ROOT/KEY/job                    the engine's name for it, as soon as that is known
ROOT/KEY/batch[.MEMBER].log     what the engine's machines say beside the program's log
ROOT/KEY/[MEMBER/]cancelled     its user asked to end it
ROOT/KEY/[MEMBER/]claim, started.json, ended.json, log, outputs/    by `wrapper`
ROOT/KEY/[MEMBER/]seen.json     how it ended by the engine's word, since engines forget
ROOT/KEY/MEMBER                 of jobs submitted together: a link to each one's own folder
ROOT/.forgotten-KEY.…           what is being removed

Of a job that is not this process's user's (`Request.login`) nothing of this can be written, or
given another name, by its user, but what is in these:

ROOT/KEY/job.json               the request again, for the wrapper alone
ROOT/KEY/own/                   batch.log, claim, started.json and ended.json; log and outputs above
                                it are links to folders of the run, which are the user's

What the job's user can write is read by `written` alone.
"""

import fcntl
import hashlib
import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from headway.durable import replace_file
from headway.engine import wrapper
from headway.engine.archive import SCRIPT, archive
from headway.engine.judge import Given
from headway.engine.login import Login
from headway.engine.port import Array, Gang, Request, Used
from headway.engine.record import Record
from headway.engine.written import DOCUMENT, RECORD, USED, document_of, text_of
from headway.errors import InvalidInput
from headway.model.run import Exit, ExitKind
from headway.trees import remove

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,63}")
_NAME = re.compile(r"[A-Za-z0-9][\w.:@\[\]-]{0,199}", re.ASCII)
"""An engine's name for a job, as its wrapper notes it."""
_FORGOTTEN = ".forgotten-"
_START = "headway: a start"
"""Line of the engine's own log, which is one file for all starts of a job."""
_OF_ONE = frozenset({"cancelled", "started.json", "ended.json", "seen.json"})
"""Files that say what has become of a job."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the files of one key said at one look."""

    was_tried: bool
    engine_id: str
    """Not of those that were submitted together: each of them has its own."""
    each: tuple[str, ...]
    members: tuple[int, ...]
    grace_s: float
    touched: frozenset[int]
    given: Given | None = None


class Place:
    """The jobs of one site on one engine, as files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._facts: dict[str, tuple[tuple[tuple[int, int], ...], Facts | None]] = {}
        self._requests: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}
        self._archive = archive()
        self._wrapper = root / f"wrapper-{hashlib.sha256(self._archive).hexdigest()[:12]}.pyz"

    def folder(self, key: str, member: int = 0) -> Path:
        """Where its files lie.

        Raises:
            InvalidInput: No key can be that.
        """
        return Path(self._path(key), str(member) if member else "")

    def _path(self, key: str) -> str:
        """The folder of *key*, as text: each round asks for those of ten thousand."""
        if KEY.fullmatch(key) is None:
            raise InvalidInput("key", key, "give letters, digits, dots and dashes, 64 at most")
        return f"{self.root}/{key}"

    def wrote(self, key: str, member: int = 0) -> Path:
        """Where its wrapper writes what has become of it."""
        return Path(wrapper.own(str(self.folder(key, member))))

    def login(self, key: str) -> Login | None:
        """Whose job it is; None: this process's user's."""
        found = self._request(key).get("login")
        return None if found is None else Login(**found)

    def uid(self, key: str) -> int:
        """The same, as the engine tells it."""
        login = self._request(key).get("login")
        return os.geteuid() if login is None else int(login["uid"])

    def known(self) -> dict[str, Facts]:
        """Of all jobs that were to be submitted and are not forgotten, in their order."""
        try:
            with os.scandir(self.root) as files:
                names = [each.name for each in files if each.is_dir()]
        except FileNotFoundError:
            return {}
        keys = sorted(name for name in names if KEY.fullmatch(name))  # else somebody's copy
        return {key: facts for key in keys if (facts := self.facts(key)).was_tried}

    def facts(self, key: str) -> Facts:
        """What its files say, looked at again where a file of its folder came or went.

        One that came in the same tick of the clock as the last look leaves the folder's time as it
        was: that is believed at the second look.
        """
        path = self._path(key)
        try:
            folders = [os.stat(each) for each in {path: None, wrapper.own(path): None}]  # noqa: PTH116
        except FileNotFoundError:
            return Facts(False, "", (), (0,), 0.0, frozenset())
        stamp = tuple((each.st_ino, each.st_mtime_ns) for each in folders)
        before, kept = self._facts.get(key, (None, None))
        if before == stamp and kept is not None:
            return kept
        each = tuple(self.each(key))
        found = Facts(
            self.was_tried(key), "" if each else self.noted(key), each, self.members(key),
            self.grace_s(key), frozenset(self.touched(key)), self.given(key),
        )  # fmt: skip
        # Files of an array's members lie in folders of their own.
        is_sure = before == stamp and found.members == (0,)
        self._facts[key] = stamp, found if is_sure else None
        return found

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Nobody else submits a job of that key meanwhile; the kernel frees it from the dead."""
        folder = self.folder(key)
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        with _held(folder / "lock"):
            yield

    def prepare(
        self,
        request: Request,
        names: str,
        spread: Sequence[str] = (),
        rank_variable: str = "",
        given: Given | None = None,
    ) -> Path:
        """Write down what is to run; the script that the engine is given.

        Args:
            request: What it asks for.
            names: Lines of sh that tell the wrapper who it is.
            spread: Words that start what follows them once on each node of an allocation.
            rank_variable: In which each of these finds its number.
            given: What the engine is given, as it will tell it.
        """
        folder, login = self.folder(request.key), request.login
        with _held(self.root / "lock"):
            if not self._wrapper.exists():
                replace_file(self._wrapper, self._archive, mode=0o644)
        if login is not None:
            for each in (self.root, folder):
                each.chmod(0o711)  # passed by those who know what is in it
            own = folder / wrapper.OWN
            own.mkdir(mode=0o700, exist_ok=True)
            os.chown(own, *login.ids, follow_symlinks=False)
        gang = request.part(Gang)
        array = request.part(Array)
        document: dict[str, Any] = {
            "command": request.command,
            "env": dict(request.env),
            "working_dir": request.working_dir,
            "python": request.python,
            "image": request.image,
            "mounts": request.mounts,
            "grace_s": request.grace_s,
            "given": given and asdict(given),
            "time_limit_s": request.time_limit_s,
            "members": array and array.members,
            "each": [one.key for one in array.each] if array else [],
            "gang": gang
            and {
                "nodes": gang.nodes,
                "env": dict(gang.env),
                "spread": [] if gang.starts_others else list(spread),
                "rank_variable": rank_variable,
            },
        }
        for number, one in enumerate(array.each if array else (), 1):
            part, path = folder / f"{number}.part", self.folder(one.key) / "group"
            before = text_of(path)
            part.unlink(missing_ok=True)
            part.symlink_to(f"../{one.key}")
            part.rename(folder / str(number))
            replace_file(path, request.key, lasts=False)
            self._forget_group(before)
        if login is not None:
            text = json.dumps(document)
            replace_file(folder / "job.json", text, mode=0o400, owner=login.ids)
            document["login"] = asdict(login)
        replace_file(folder / "request.json", json.dumps(document))
        script = SCRIPT.format(
            key=request.key,
            names=names,
            start=_START,
            wrapper=shlex.quote(str(self._wrapper)),
            folder=shlex.quote(str(folder)),
        )
        ids = None if login is None else login.ids
        replace_file(folder / "job.sh", script, mode=0o750, lasts=False, owner=ids)
        return folder / "job.sh"

    def members(self, key: str) -> tuple[int, ...]:
        """The numbers of its members; 0 alone for a job that is no array."""
        count = self._request(key).get("members")
        return tuple(range(1, count + 1)) if count else (0,)

    def each(self, key: str) -> list[str]:
        """The keys of the jobs that were submitted together under that one; else none."""
        return [str(one) for one in self._request(key).get("each", ())]

    def touched(self, key: str) -> set[int]:
        """Those of its members of which there is any file, and 0 where there is one of all of it.

        Nothing is known of others. One look for each of thousands that only wait.
        """
        try:
            with os.scandir(self.folder(key)) as files:
                names = {each.name for each in files}
        except FileNotFoundError:
            return set()
        own = self.wrote(key)
        names |= {name for name in _OF_ONE if os.path.lexists(own / name)}
        found = {int(name) for name in names if name.isdecimal()}
        return found if names.isdisjoint(_OF_ONE) else found | {0}

    def note(self, key: str, engine_id: str) -> None:
        """The engine has it, under that name: it may be lost, since the engine has its key."""
        replace_file(self.folder(key) / "job", engine_id, lasts=False)

    def was_tried(self, key: str) -> bool:
        """Whether somebody has begun to submit it."""
        return (self.folder(key) / "request.json").exists()

    def began(self, key: str) -> bool:
        """Whether it, or a member of it, has begun, or has ended by the engine's word."""
        folder = self.folder(key)
        names = ("claim", f"{wrapper.OWN}/claim", "seen.json", "[1-9]*/claim", "[1-9]*/seen.json")
        return any(True for name in names for _ in folder.glob(name))

    def noted(self, key: str) -> str:
        """The engine's name for it: as noted, or as the wrapper of a job of it says; else empty."""
        return next(iter(self.names(key)), "")

    def names(self, key: str) -> list[str]:
        """The same, of one that was taken twice both; what its wrapper says, which runs, first."""
        folder = self.folder(key)
        claims = (self.wrote(key) / "claim", folder / "job"), folder.glob("[1-9]*/claim")
        texts = dict.fromkeys(text_of(path) for path in chain(*claims))
        return [text for text in texts if _NAME.fullmatch(text)]

    def record(self, key: str, member: int = 0) -> Record | None:
        """What the wrapper wrote of it; None before its start."""
        folder = self.wrote(key, member)
        return document_of(folder / "ended.json", RECORD) or document_of(
            folder / "started.json", RECORD
        )

    def said(self, key: str, member: int = 0) -> str:
        """What the engine's machine said of its last start, where that goes into `batch`."""
        if group := text_of(self.folder(key) / "group"):
            key, number = group, self.noted(key).rpartition("_")[2]
        else:
            number = str(member or "")
        name = f"batch.{number}.log" if number else "batch.log"
        return text_of(self.wrote(key) / name).rpartition(_START)[2]

    def used(self, key: str, member: int = 0) -> Used | None:
        """What it used, on the node where it used most; None before its end."""
        folder = self.wrote(key, member)
        if (ended := document_of(folder / "ended.json", USED)) is None:
            return None
        paths = (folder / f"rank.{n}.json" for n in range(self._request(key).get("nodes", 0)))
        ranks = [found for path in paths if (found := document_of(path, USED)) is not None]
        return Used.over(ranks) if ranks else ended

    def see(self, key: str, member: int, state: str, end: Exit) -> None:
        """Keep how it ended, while the engine still says so."""
        path = self.folder(key, member) / "seen.json"
        path.parent.mkdir(mode=0o750, exist_ok=True)
        content = {"state": state, "kind": end.kind, "code": end.code, "message": end.message}
        replace_file(path, json.dumps(content), lasts=False)

    def seen(self, key: str, member: int) -> tuple[str, Exit] | None:
        """The engine's last word on it, and how it ended; None where nothing was kept."""
        found = document_of(self.folder(key, member) / "seen.json", DOCUMENT)
        if found is None:
            return None
        return found["state"], Exit(ExitKind(found["kind"]), found["code"], found["message"])

    def unsee(self, key: str, member: int) -> None:
        """It goes on after all: it was put into the queue again."""
        (self.folder(key, member) / "seen.json").unlink(missing_ok=True)

    def cancel(self, key: str, member: int, now: datetime) -> float:
        """Note that its user asked to end it; for how many seconds that has been so."""
        path = self.folder(key, member) / "cancelled"
        if not path.exists():
            path.parent.mkdir(mode=0o750, exist_ok=True)
            replace_file(path, now.isoformat())
        return (now - datetime.fromisoformat(path.read_text())).total_seconds()

    def is_cancelled(self, key: str, member: int = 0) -> bool:
        """Whether its user asked to end it, or that member of it."""
        return (self.folder(key, member) / "cancelled").exists()

    def grace_s(self, key: str) -> float:
        """Between its SIGTERM and its SIGKILL."""
        return float(self._request(key).get("grace_s", 0.0))

    def given(self, key: str) -> Given | None:
        """What the engine was given; None where that was not noted."""
        if (found := self._request(key).get("given")) is None:
            return None
        follows = found["follows"]
        return Given(**found | {"follows": None if follows is None else tuple(follows)})

    def _request(self, key: str) -> dict[str, Any]:
        """What was asked for, read again where that was written anew: each question looks at it.

        Raises:
            OSError: The file server does not answer: nothing is known of the job then, which is not
                to be taken for one that was never asked for.
        """
        path = f"{self._path(key)}/request.json"
        try:
            now = os.stat(path)  # noqa: PTH116
        except FileNotFoundError:
            return {}
        stamp = now.st_ino, now.st_mtime_ns
        if key not in self._requests or self._requests[key][0] != stamp:
            found = json.loads(Path(path).read_bytes())
            kept: dict[str, Any] = {}
            names = ("members", "each", "grace_s", "given", "login")
            kept |= {name: found[name] for name in names if name in found}
            kept["nodes"] = (found.get("gang") or {}).get("nodes", 0)
            self._requests[key] = stamp, kept
        return self._requests[key][1]

    def forget(self, key: str) -> None:
        """Remove everything of it: at once, since half of it would be taken for a job's."""
        folder = self.folder(key)
        group = text_of(folder / "group")
        self._requests.pop(key, None)
        self._facts.pop(key, None)
        with suppress(FileNotFoundError):
            folder.rename(self.root / f"{_FORGOTTEN}{key}.{time.time_ns()}")
        for gone in self.root.glob(f"{_FORGOTTEN}*"):  # by whoever was killed meanwhile, too
            with suppress(OSError):
                remove(gone)
        self._forget_group(group)

    def _forget_group(self, group: str) -> None:
        """Forget what was submitted together under that key, where nothing belongs to it still."""
        links = self.folder(group).glob("[1-9]*") if group else ()
        if group and not any(text_of(link / "group") == group for link in links):
            self.forget(group)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
