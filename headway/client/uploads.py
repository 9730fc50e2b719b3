"""Sends data to a gateway: only what it has not got yet, so that what broke off goes on."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.client.connection import Connection, Json
from headway.clock import Clock
from headway.code.folder import PackedFolder, Sent, pack
from headway.code.framework import framework_of
from headway.code.settings import settings_of
from headway.errors import GatewayUnreachable, InvalidInput
from headway.model.code_frames import joined
from headway.model.sent_files import Manifest, SentFile
from headway.model.upload import DATA, UploadManifest

Told = Callable[[str, int, int], None]
"""Is told what is being done (``reading`` or ``sending``), how many bytes are done, of how many."""
_TRIES = 5
_PAUSE_S = 2.0
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def put_data(gateway: Connection, path: Path, name: str, *, told: Told, clock: Clock) -> Json:
    """Send the file or directory at *path*; the data set as the gateway has it then.

    Raises:
        InvalidInput: It cannot travel, or the name is another data set's.
        GatewayUnreachable: It did not answer for several tries; the same again goes on.
    """
    packed = _read(path, told)
    for left in reversed(range(_TRIES)):
        try:
            found = gateway.send("/data", packed.manifest.text, {"name": name})
            missing = set(found["missing"])
            if not missing:
                return found
            _send(gateway, packed, missing, told)
        except GatewayUnreachable:
            if not left:
                raise
            clock.sleep(_PAUSE_S)
    raise GatewayUnreachable(gateway.url, f"parts of {path} did not arrive")


def _read(path: Path, told: Told) -> PackedFolder:
    """What is at *path*, which is read as a whole for that.

    Raises:
        InvalidInput: Nothing is there, or something that cannot travel.
    """
    try:
        is_directory = path.is_dir()
        names = sorted(_names(path)) if is_directory else [path.name]
        root = path if is_directory else path.parent
        total = sum((root / each).stat().st_size for each in names)
        files, done = [], 0
        for each in names:
            size, chunks = 0, []
            for data in _content(root / each):
                size += len(data)
                chunks.append(hashlib.sha256(data).hexdigest())
                told("reading", done + size, total)
            done += size
            files.append(SentFile(each, size, tuple(chunks)))
    except OSError as error:
        allowed = f"it cannot be read ({error.strerror}); give a file or a directory"
        raise InvalidInput("data", str(path), allowed) from None
    return PackedFolder(root, UploadManifest.of(files, is_directory=is_directory))


def _names(folder: Path) -> Iterator[str]:
    """Paths of all files below *folder*. A link could lead anywhere, so none travels."""
    for above, folders, names in os.walk(folder, onerror=_raise):
        for name in (*folders, *names):
            if (Path(above) / name).is_symlink():
                place = str((Path(above) / name).relative_to(folder))
                raise InvalidInput("data", place, "links do not travel: put what it leads to there")
        yield from ((Path(above) / name).relative_to(folder).as_posix() for name in names)


def _raise(error: OSError) -> None:
    raise error


def _content(path: Path) -> Iterator[bytes]:
    with os.fdopen(os.open(path, _OPEN), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise InvalidInput("data", str(path), "it is no regular file: leave it out")
        while data := file.read(DATA.chunk_bytes):
            yield data


def _send(gateway: Connection, packed: PackedFolder, missing: set[str], told: Told) -> None:
    total, done = sum(packed.manifest.chunks[each] for each in missing), 0
    for data in packed.chunks(missing):
        gateway.send("/data/chunks", data, {})
        done += len(data)
        told("sending", done, total)


def send_code(gateway: Connection, folder: Path, *, team: str, sent: Sent | None) -> str:
    """Send what of *folder* travels; its id. See `Client.send_code`."""
    packed = pack(folder)
    missing = _missing(gateway, packed.manifest, team)
    total = sum(packed.manifest.chunks.get(each, 0) for each in missing)
    done = 0
    for body in joined(packed.chunks(missing)):
        gateway.send("/code/chunks", body, {"team": team})
        done += len(body)
        if sent is not None:
            sent(min(done, total), total)
    if missing and (left := _missing(gateway, packed.manifest, team)):
        cause = f"{len(left)} parts of {packed.folder} did not arrive"
        raise GatewayUnreachable(gateway.url, cause)
    return packed.manifest.content_id


def with_code(gateway: Connection, job: Mapping[str, Any], *, sent: Sent | None) -> Json:
    """*job* with the folder of its `workdir` sent. See `Client.with_code`."""
    workdir = job.get("workdir")
    if not workdir:
        return dict(job)
    team = str(job.get("team") or "")
    team = "" if team == "default" else team  # what a form fills in names nobody
    code = send_code(gateway, Path(str(workdir)), team=team, sent=sent)
    return with_training({**job, "workdir": "", "code": code}, Path(str(workdir)))


def as_if_sent(job: Mapping[str, Any]) -> Json:
    """*job* with what `with_code` finds in the folder of its `workdir`; nothing is sent."""
    folder = Path(str(job.get("workdir") or ""))
    found = bool(job.get("workdir")) and folder.is_dir()
    return with_training(dict(job), folder) if found else dict(job)


def with_training(job: Json, folder: Path) -> Json:
    """*job* with what its code in *folder* tells of its training, where it does not say it.

    The framework that it imports, and the numbers of its files of configuration.
    """
    training, given = job.get("training") or {}, job.get("command") or []
    if not isinstance(training, dict) or isinstance(given, str):
        return job
    command = [str(word) for word in given]
    found: Json = {}
    if not training.get("framework"):
        requirements = str(job.get("requirements") or "")
        found["framework"] = framework_of(folder, command, requirements)
    if not training.get("settings"):
        found["settings"] = settings_of(folder, command)
    known = {name: value for name, value in found.items() if value}
    return {**job, "training": {**training, **known}} if known else job


def _missing(gateway: Connection, manifest: Manifest, team: str) -> set[str]:
    found = gateway.send("/code", manifest.text, {"team": team})["missing"]
    # A gateway is no reason to send anything but parts of this folder.
    return manifest.chunks.keys() & set(found)
