"""The process that reads a data set as the user whose job asked for it. Run as a module.

    python -P -m headway.staging.child SOCKET

It imports as headway's user, then becomes the job's for good, and only then
opens what the job names. Over SOCKET, whose other end `headway.staging.reader`
has, it sends JSON, and after each message that announces a piece its bytes.
"""

import asyncio
import codecs
import ctypes
import ipaddress
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

from headway.model.address import local_path
from headway.model.object_place import ObjectPlace
from headway.staging.errors import SourceChanged, SourceMissing, SourceUnreachable
from headway.staging.rules import Network, SourceRules, closed_address
from headway.staging.source import CHUNK_BYTES, Source, inspect, reading
from headway.units import MIB

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CONNECT_S, _STALL_S = 30.0, 60.0
_LISTING_S = 600.0
"""For one folder, which may have a million files."""
_REFUSED = (
    "it leads to {}, which is no public address, and this site does not list it under data hosts"
)


def main(parent: Connection) -> None:
    """Answer what the parent asks until it closes its end."""
    with suppress(EOFError, ConnectionResetError, BrokenPipeError):
        asked = json.loads(parent.recv_bytes())
        uri, rules, user = asked["uri"], SourceRules.read(asked["rules"]), asked["user"]
        try:
            made = _prepare(uri, rules)
            options = asked["options"]
            with reading(uri):
                become(user)
                file_system = made(options) if made else None
            _answer(parent, lambda: inspect(uri, rules, file_system, options), rules)
        except (SourceMissing, SourceUnreachable, SourceChanged) as error:
            _send(parent, {"error": type(error).__name__, "cause": error.cause})


def _answer(parent: Connection, look: Callable[[], Source], rules: SourceRules) -> None:
    """Look or send a file, as often as it is asked for. What goes wrong ends this process."""
    source: Source | None = None
    while asked := json.loads(parent.recv_bytes()):
        if asked["do"] == "inspect":
            source = look()
            files = [[each.name, each.size_bytes] for each in source.files]
            told = {"is_directory": source.is_directory, "identity": source.identity}
            _send(parent, {**told, "files": files})
        elif source is not None and asked["do"] == "probe":
            source.probe(source.files[asked["file"]], rules)
            _send(parent, {"done": True})
        elif source is not None:
            with source.open(source.files[asked["file"]], rules) as opened, reading(source.uri):
                while piece := opened.read(CHUNK_BYTES):
                    _send(parent, {"piece": len(piece)})
                    parent.send_bytes(piece)
            _send(parent, {"done": True})


def _send(parent: Connection, message: dict[str, Any]) -> None:
    parent.send_bytes(json.dumps(message).encode())


def become(user: tuple[int, int] | None) -> None:
    """Be *user* for good, unable to become another; None stays who this process is.

    Raises:
        OSError: It cannot; nothing was opened then.
    """
    if user is not None:
        uid, gid = user
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        if (os.getresuid(), os.getresgid()) != ((uid,) * 3, (gid,) * 3):
            raise OSError(f"process {os.getpid()} could not become {uid}:{gid}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        # After setuid, which clears it: whoever asked may be killed while a server is silent.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


# --- what must be imported while headway's own files can be read ---


def _prepare(uri: str, rules: SourceRules) -> Callable[[Mapping[str, Any]], Any] | None:
    """Import what *uri* needs.

    Gives what makes its file system of its options, where fsspec alone does not.
    """
    if local_path(uri) is not None:
        return None
    codecs.lookup("idna")
    scheme = uri.partition("://")[0]
    if scheme in {"http", "https"}:
        return _web(rules)
    from fsspec import get_filesystem_class  # noqa: PLC0415 - not for local files

    with reading(uri):
        place = ObjectPlace.of(uri)
        try:
            if scheme == "sftp":
                return _sftp(uri)
            get_filesystem_class(scheme)
        except ImportError:
            extra = scheme if place is None else place.storage
            cause = f"its node lacks what reads {scheme}://: pip install 'headway[{extra}]' there"
            raise SourceMissing(uri, cause) from None
    return None


def _sftp(uri: str) -> Callable[[Mapping[str, Any]], Any]:
    """A server of SFTP, which shows the key that the block of its credentials has."""
    import asyncssh  # noqa: PLC0415 - a third of a second of imports
    from fsspec.asyn import sync  # noqa: PLC0415
    from sshfs import SSHFileSystem  # noqa: PLC0415
    from sshfs.file import SSHFile  # noqa: PLC0415

    async def soon(answer: Awaitable[Any], within_s: float = _STALL_S) -> Any:
        try:
            return await asyncio.wait_for(answer, within_s)
        except TimeoutError:  # fsspec would raise another, without words
            raise ConnectionError(f"no answer for {within_s:.0f} s") from None

    class File(SSHFile):  # type: ignore[misc]  # sshfs has no types
        """Waits for nothing without end."""

        async def _open_file(self) -> Any:
            return await soon(super()._open_file())

        def read(self, size: int) -> Any:
            """At most a MiB, so that a slow server is none that is silent."""
            return sync(self.loop, lambda: soon(self._file.read(min(size, MIB))))

        def _close(self) -> None:
            sync(self.loop, lambda: soon(self._file.close()))

    class Server(SSHFileSystem):  # type: ignore[misc]
        """Waits for nothing without end."""

        async def _info(self, path: str, **values: Any) -> Any:
            return await soon(super()._info(path, **values))

        async def _ls(self, path: str, *values: Any, **named: Any) -> Any:
            return await soon(super()._ls(path, *values, **named), _LISTING_S)

        def _open(self, path: str, *values: Any, **named: Any) -> Any:
            return File(self, path, *values, **named)

    def connect(options: Mapping[str, Any]) -> Any:
        address = urlsplit(uri)
        key = options.get("private_key")
        known = asyncssh.import_public_key(options["host_key"])
        return Server(
            address.hostname,
            port=address.port or 22,
            username=options["username"],
            password=options.get("password"),
            client_keys=[asyncssh.import_private_key(key)] if key else None,
            known_hosts=([known], [], []),
            # Nothing of the machine's own.
            agent_path=None,
            config=None,
            connect_timeout=_CONNECT_S,
            login_timeout=_CONNECT_S,
            keepalive_interval=_STALL_S / 3,
            skip_instance_cache=True,
        )

    return connect


def _web(rules: SourceRules) -> Callable[[Mapping[str, Any]], Any]:
    """The web by fsspec, which connects to no address that *rules* close."""
    import aiohttp  # noqa: PLC0415 - 0.3 s of imports
    from fsspec.implementations.http import HTTPFileSystem  # noqa: PLC0415

    refused: list[str] = []
    listed = _networks(rules.hosts)

    def connect(address: Any) -> socket.socket:
        """A socket for the very address that is about to be connected to, after every redirect."""
        family, kind, protocol, _, where = address
        if closed_address(ipaddress.ip_address(str(where[0]).partition("%")[0]), listed):
            refused.append(str(where[0]))
            raise PermissionError(f"{where[0]} is not public")
        return socket.socket(family, kind, protocol)

    async def client(**_: Any) -> Any:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(socket_factory=connect),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_STALL_S),
        )

    class Web(HTTPFileSystem):  # type: ignore[misc]  # fsspec has no types
        """Says which address was refused, whatever fsspec makes of the error."""

        async def _info(self, url: str, **values: Any) -> Any:
            try:
                return await super()._info(url, **values)
            except Exception:
                if refused:
                    raise SourceMissing(url, _REFUSED.format(refused[-1])) from None
                raise

    return lambda _: Web(get_client=client, skip_instance_cache=True)


def _networks(hosts: tuple[str, ...]) -> tuple[Network, ...]:
    """Addresses of what the site lists; a name counts as what it means now."""
    found: list[Network] = []
    for host in hosts:
        try:
            found.append(ipaddress.ip_network(host, strict=False))
        except ValueError:
            try:
                answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            except OSError:
                continue  # what has no address opens none
            found += [ipaddress.ip_network(str(each[4][0]).partition("%")[0]) for each in answers]
    return tuple(found)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
