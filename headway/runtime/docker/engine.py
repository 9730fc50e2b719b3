"""One Docker engine: the connection to it, what it can do, and its errors made ours."""

import getpass
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException
from docker.utils import kwargs_from_env

from headway.errors import shown
from headway.model.number_range import NumberRange
from headway.runtime.errors import EngineUnreachable, PolicyViolation, RuntimeFailure

SUBUID, SUBGID = Path("/etc/subuid"), Path("/etc/subgid")
_ROOT_OF_REMAPPED = re.compile(r"([0-9]+)\.([0-9]+)")


@dataclass(frozen=True, slots=True)
class Remap:
    """Ids of the host that containers may have, where an engine remaps users (userns-remap).

    What headway chowns on the host, and what a program writes there, belongs to the host's ids; the
    engine is told the container's. Both are the same number apart, by the subordinate range.
    """

    uids: NumberRange
    gids: NumberRange

    def inside(self, uid: int, gid: int) -> tuple[int, int]:
        """What the host's *uid* and *gid* are called in a container.

        Raises:
            PolicyViolation: No container can have them.
        """
        for what, number, ids in (("uid", uid, self.uids), ("gid", gid, self.gids)):
            if number not in ids:
                raise PolicyViolation(
                    what,
                    number,
                    f"this engine remaps users (userns-remap) to {ids}; give the team uids in "
                    "there, in teams of the block headway-container-policy/site",
                )
        return uid - self.uids.first, gid - self.gids.first


def remap_of(info: Mapping[str, Any], subuid: str, subgid: str) -> Remap | None:
    """How an engine that says *info* of itself maps users; None where it does not.

    Args:
        info: Its own words.
        subuid: What is in /etc/subuid.
        subgid: What is in /etc/subgid.
    """
    if not any("name=userns" in each for each in info.get("SecurityOptions") or ()):
        return None
    # Its folder is named after the ids that root of a container has on the host.
    found = _ROOT_OF_REMAPPED.fullmatch(Path(str(info.get("DockerRootDir", ""))).name)
    if found is None:
        return None
    return Remap(_range(int(found[1]), subuid), _range(int(found[2]), subgid))


def read_remap(info: Mapping[str, Any]) -> Remap | None:
    """The same, by this machine's files."""
    return remap_of(info, *(_text(each) for each in (SUBUID, SUBGID)))


def _range(first: int, text: str) -> NumberRange:
    """The subordinate range that begins with *first*; the usual size where none is listed."""
    fields: Iterable[list[str]] = (line.split(":") for line in text.splitlines())
    counts = [int(each[2]) for each in fields if len(each) == 3 and each[1] == str(first)]
    return NumberRange(first, first + max(counts, default=_USUAL) - 1)


_USUAL = 65_536


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


SOCKET = "unix://"
_DEFAULT_ADDRESS = f"{SOCKET}/var/run/docker.sock"


class Engine:
    """An engine, first spoken to when it is asked something: a site is built while it is down.

    Args:
        address: Where it is looked for; None for the SDK's default.
        timeout_s: How long it may take for one answer.
    """

    def __init__(self, address: str | None = None, timeout_s: int = 60) -> None:
        self.address = address or kwargs_from_env().get("base_url") or _DEFAULT_ADDRESS
        self.timeout_s = timeout_s

    def connect(self, timeout_s: int) -> docker.APIClient:
        """A connection of its own. Raises what the SDK raises."""
        settings = kwargs_from_env() | {"base_url": self.address}
        api = docker.APIClient(version="auto", timeout=timeout_s, **settings)
        if self.address.startswith("unix"):  # no proxy is on the way: none is looked for
            api.trust_env = False
        return api

    @cached_property
    def api(self) -> docker.APIClient:
        """The connection that is kept open."""
        with asking("connect"):
            return self.connect(self.timeout_s)

    @cached_property
    def info(self) -> dict[str, Any]:
        """What it says of itself."""
        with asking("ask what it can do"):
            found: dict[str, Any] = self.api.info()
        return found

    @cached_property
    def remap(self) -> Remap | None:
        """How it maps the users of containers to those of the host; None where it does not."""
        return read_remap(self.info)

    def expected(self) -> bool:
        """Should an engine be there: is its socket, or was its address given?

        A socket that this user may not open is somebody else's engine.
        """
        return self._socket is None or os.access(self._socket, os.R_OK | os.W_OK)

    def why_none(self) -> str:
        """Why none is used: none answers, or this user may not speak to the one there is."""
        if self._socket is None or not self._socket.is_socket() or self.expected():
            return "no container engine answers"
        return (
            f"the container engine at {self._socket} is closed to {getpass.getuser()}: "
            "let this user join the group of that file (most often: docker), log in again, and "
            "do `headway down` and `headway up`"
        )

    @property
    def _socket(self) -> Path | None:
        scheme, _, path = self.address.partition("://")
        return Path("/", path) if "unix" in scheme else None


@contextmanager
def ordering(action: str) -> Iterator[None]:
    """Turn the SDK's errors into ours: a server error means that the engine refuses *action*."""
    try:
        yield
    except APIError as error:
        raise RuntimeFailure(
            f"the container engine refused to {action}: {error.explanation or error}"
        ) from error
    except (requests.exceptions.RequestException, DockerException) as error:
        raise EngineUnreachable(action, shown(str(error), 200)) from error


@contextmanager
def asking(action: str) -> Iterator[None]:
    """As `ordering`, for a question: a server error is no answer to it, so it may be repeated."""
    with ordering(action):
        try:
            yield
        except APIError as error:
            if not error.is_server_error():
                raise
            cause = shown(str(error.explanation or error), 200)
            raise EngineUnreachable(action, cause) from error
