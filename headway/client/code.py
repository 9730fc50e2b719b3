"""Sends a folder of code to a gateway: only what it has not got yet."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.client.connection import Connection, Json
from headway.code.folder import Sent, pack
from headway.code.framework import framework_of
from headway.code.settings import settings_of
from headway.errors import GatewayUnreachable
from headway.model.code_frames import joined
from headway.model.sent_files import Manifest


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
