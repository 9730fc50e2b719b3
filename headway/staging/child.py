"""The process that reads a data set as the user whose job asked for it. Run as a module.

    python -P -m headway.staging.child SOCKET

It imports as headway's user, then becomes the job's for good, and only then
opens what the job names. It hands out open files over SOCKET; what it says is
JSON, a line each (`headway.staging.reader` has the other end).
"""

import codecs
import ctypes
import ipaddress
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from headway.errors import SourceChanged, SourceMissing, SourceUnreachable
from headway.model.address import local_path
from headway.staging.channel import Channel
from headway.staging.rules import Network, SourceRules, closed_address
from headway.staging.source import CHUNK_BYTES, Source, look, reading

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CONNECT_S, _STALL_S = 30.0, 60.0
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031
_REFUSED = (
    "it leads to {}, which is no public address, and this site does not list it under data hosts"
)


def main(channel: Channel) -> None:
    """Answer what the parent asks until it closes the socket."""
    asked = channel.receive()
    if asked is None:
        return
    uri, rules, user = asked["uri"], SourceRules.read(asked["rules"]), asked["user"]
    with _told(channel):
        web = _prepare(uri, rules)
        with reading(uri):
            become(user)
        source: Source | None = None
        while (asked := channel.receive()) is not None:
            if asked["do"] == "look":
                source = look(uri, rules, web() if web else None)
                channel.send(
                    {
                        "is_directory": source.is_directory,
                        "identity": source.identity,
                        "files": [[f.name, f.size_bytes] for f in source.files],
                    }
                )
            elif source is not None:
                file = source.files[asked["file"]]
                with source.open(file, rules) as opened:
                    _hand_over(channel, uri, opened, remote=file.inode is None)


@contextmanager
def _told(channel: Channel) -> Iterator[None]:
    """Send the parent what goes wrong in the block; the end of this process follows."""
    try:
        yield
    except (SourceMissing, SourceUnreachable, SourceChanged) as error:
        channel.send({"error": type(error).__name__, "cause": error.cause})


def _hand_over(channel: Channel, uri: str, opened: BinaryIO, *, remote: bool) -> None:
    """Give the parent a descriptor to read *opened* from: its own, or a pipe that is fed here."""
    if not remote:
        channel.send({"opened": True}, opened.fileno())
        return
    read_end, write_end = os.pipe()
    _widen(write_end)
    channel.send({"opened": True}, read_end)
    os.close(read_end)
    with os.fdopen(write_end, "wb") as out, reading(uri):
        while piece := opened.read(CHUNK_BYTES):
            out.write(piece)
            out.flush()
    channel.send({"done": True})


def _widen(pipe: int) -> None:
    if sys.platform.startswith("linux"):
        import fcntl  # noqa: PLC0415 - beside its only use

        try:
            fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            return  # over the user's limit: the default is slower, not wrong


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


def _prepare(uri: str, rules: SourceRules) -> Callable[[], Any] | None:
    """Import what *uri* needs; gives the web's file system where it is an address of the web."""
    if local_path(uri) is not None:
        return None
    codecs.lookup("idna")
    scheme = uri.partition("://")[0]
    if scheme in {"http", "https"}:
        return _web(rules)
    from fsspec import get_filesystem_class  # noqa: PLC0415 - not for local files

    with reading(uri):
        get_filesystem_class(scheme)
    return None


def _web(rules: SourceRules) -> Callable[[], Any]:
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

    return lambda: Web(get_client=client, skip_instance_cache=True)


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
    main(Channel(socket.socket(fileno=int(sys.argv[1]))))
