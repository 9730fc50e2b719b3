"""What another team notices of an attack on the site: a ratio for each, and the site's memory.

    python benchmarks/attacks.py [--seconds 6] [--only NAME ...]

Brings up a site without an engine, on which a member of one team has a session and large outputs.
A member of another team asks for `health` and `nodes`, each twenty times a second, alone and while
an attack goes on: by a stranger, a token that may only watch, the member, or its session's program.
A row for each: the slowest answer of both questions beside the slowest alone, and the memory of the
site's processes (PSS, in which what processes share counts once) beside what it was before any
attack. Targets: at most three times as long, at most 300 MiB more. Alone is the median of the
slowest answers of equally long times before each attack.

Attackers and programs have the lowest priority, each in a session of its own, since the kernel
shares processors between sessions first: they stand for machines of their own. Where this machine
is busy with something else, the slowest answers are of that.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import httpx  # noqa: E402
import psutil  # noqa: E402
from websockets.exceptions import WebSocketException  # noqa: E402
from websockets.sync.client import connect  # noqa: E402

from headway.ledger import Ledger  # noqa: E402
from headway.model.access import Scope  # noqa: E402
from headway.model.session import session_path  # noqa: E402
from tests.support.api import MEMBER, bearer  # noqa: E402
from tests.support.burst import lowest_priority  # noqa: E402
from tests.support.site import LiveSite, live_site, wait_for  # noqa: E402

MIB = 1 << 20
MOST_RATIO, MOST_MORE_BYTES = 3.0, 300 * MIB
FORK = multiprocessing.get_context("fork")
ATTACKER = "127.0.0.2"
"""The address that attacks come from; who is attacked asks from another."""
PROGRAM = r"""
import base64, hashlib, os, socket, threading

os.nice(19)
try:
    open("/proc/self/autogroup", "w").write("19")
except OSError:
    pass
outputs = os.environ["HEADWAY_OUTPUTS"]
deep = os.path.join(outputs, *["d" * 200] * 8)
os.makedirs(deep)
for number in range(2000):
    open(os.path.join(deep, f"{number:0200}"), "w").close()
os.truncate(os.open(os.path.join(outputs, "huge"), os.O_CREAT | os.O_RDWR), 15 << 40)
os.truncate(os.open(os.path.join(outputs, "large"), os.O_CREAT | os.O_RDWR), 64 << 30)
OK = b"HTTP/1.1 200 OK\r\n"
FLOODS = {
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 10000),
    "early": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2000),
    "stream": (OK + b"\r\n", b"x" * (1 << 20)),
    "frames": (None, b"\x82\x01x" * 20000),
    "messages": (None, b"\x82\x7f" + (15 << 20).to_bytes(8, "big") + b"x" * (15 << 20)),
}

def serve(client):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        if not (data := client.recv(65536)):
            return
        head += data
    asked = head.split(b" ")[1].rsplit(b"/", 1)[1].decode()
    begin, flood = FLOODS.get(asked, (OK + b"\r\n", b""))
    if begin is None:
        lines = [line.split(b": ", 1) for line in head.split(b"\r\n") if b": " in line]
        key = {name.lower(): value for name, value in lines}[b"sec-websocket-key"]
        guid = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key + guid).digest())
        begin = b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        begin += b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    try:
        client.sendall(begin)
        while flood:
            client.sendall(flood)
    except OSError:
        pass
    client.close()

where = os.environ["HEADWAY_SESSION_HOST"], int(os.environ["HEADWAY_SESSION_PORT"])
with socket.create_server(where) as listening:
    print("serving", flush=True)
    while True:
        threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
"""
JOB = {
    "name": "canary",
    "image": "headway-samples:local",
    "command": ["python", "-u", "-c", PROGRAM],
    "session": {"idle": "1h"},
    "resources": {"host_memory": "1GiB", "cpus": 0.5, "disk": "10GiB"},
    "retries": 0,
}
SMALL = {"name": "small", "image": "a:1", "command": ["true"]}


@dataclass(frozen=True, slots=True)
class Target:
    """What attackers know: ports of the site, tokens as headers, and the member's run."""

    port: int
    sessions_port: int
    member: dict[str, str]
    watcher: dict[str, str]
    run: str

    def connection(self, port: int = 0) -> http.client.HTTPConnection:
        """A new connection of the attacker's."""
        return http.client.HTTPConnection(
            "127.0.0.1", port or self.port, timeout=60, source_address=(ATTACKER, 0)
        )

    def ask(
        self,
        at_once: int,
        method: str,
        path: str,
        body: Any = None,
        *,
        who: str = "member",
        **more: str,
    ) -> None:
        """Ask the same over *at_once* connections, for ever, and read all that is answered."""
        headers = getattr(self, who, {}) | {
            key.replace("_", "-"): text for key, text in more.items()
        }
        if isinstance(body, dict):
            body, headers["Content-Type"] = json.dumps(body).encode(), "application/json"

        def once() -> None:
            connection = self.connection()
            with suppress(http.client.HTTPException):
                while True:
                    connection.request(method, path, body() if callable(body) else body, headers)
                    answer = connection.getresponse()
                    while answer.read(MIB):
                        pass

        together(at_once, once)

    def send(self, at_once: int, path: str, piece: bytes) -> None:
        """Send bodies of *piece*, chunked and without an end."""
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"

        def once() -> None:
            with socket.create_connection(("127.0.0.1", self.port), 60, (ATTACKER, 0)) as opened:
                opened.sendall(head.encode())
                while True:
                    opened.sendall(piece)

        together(at_once, once)

    def session(self, at_once: int, flood: str, *, read: bool = True) -> None:
        """Have the program of the session answer with a *flood*."""
        path = session_path(self.run) + flood

        def once() -> None:
            connection = self.connection(self.sessions_port)
            connection.request("GET", path, headers=self.member)
            answer = connection.getresponse()
            while answer.read1(MIB):
                pass

        def socket_once() -> None:
            address = f"ws://127.0.0.1:{self.sessions_port}{path}"
            with connect(
                address, additional_headers=self.member, proxy=None, max_size=None,
                compression=None, source_address=(ATTACKER, 0),
            ) as opened:  # fmt: skip
                if not read:
                    time.sleep(600)
                for _ in opened:
                    pass

        together(at_once, socket_once if flood in ("frames", "messages") else once)

    def execute(self, at_once: int, run: str, *, who: str) -> None:
        """Open commands, and send pings that say nothing."""

        def once() -> None:
            address = f"ws://127.0.0.1:{self.port}/v1/runs/{run}/exec"
            with connect(
                address, additional_headers=getattr(self, who), proxy=None,
                source_address=(ATTACKER, 0),
            ) as opened:  # fmt: skip
                while True:
                    opened.socket.sendall(b"\x89\x80\0\0\0\0" * 10_000)

        together(at_once, once)


def together(at_once: int, once: Callable[[], None]) -> None:
    """Do it in so many threads, again and again; refusals and broken connections are no end."""

    def again() -> None:
        while True:
            with suppress(OSError, http.client.HTTPException, WebSocketException, EOFError):
                once()
            time.sleep(0.001)

    for _ in range(at_once):
        threading.Thread(target=again, daemon=True).start()
    time.sleep(600)


TINY = b"1\r\nx\r\n" * 10_000
GUESS = "hwt_" + "A" * 43
CHUNK = os.urandom(MIB)
ATTACKS: dict[str, Callable[[Target], None]] = {
    "stranger: bodies in chunks of a byte, login": lambda to: to.send(4, "/v1/login", TINY),
    "stranger: bodies in chunks of a byte, runs": lambda to: to.send(4, "/v1/runs", TINY),
    "stranger: endless bodies": lambda to: to.send(4, "/v1/runs", b"100000\r\n" + CHUNK + b"\r\n"),
    "stranger: guesses at tokens": lambda to: to.ask(
        32, "GET", "/v1/nodes", who="nobody", Authorization=f"Bearer {GUESS}"
    ),
    "stranger: logins": lambda to: to.ask(16, "POST", "/v1/login", b"token=hwt_x", who="nobody"),
    "watcher: nodes, as often as it can": lambda to: to.ask(32, "GET", "/v1/nodes", who="watcher"),
    "watcher: exec in a run that is none": lambda to: to.execute(8, "nonsense", who="watcher"),
    "member: exec in its run": lambda to: to.execute(32, to.run, who="member"),
    "member: lists of outputs": lambda to: to.ask(8, "GET", f"/v1/runs/{to.run}/outputs"),
    "member: digests of 15 TiB": lambda to: to.ask(
        8, "HEAD", f"/v1/runs/{to.run}/outputs/huge", Want_Repr_Digest="sha-256=1"
    ),
    "member: downloads": lambda to: to.ask(16, "GET", f"/v1/runs/{to.run}/outputs/large"),
    "member: logs": lambda to: to.ask(32, "GET", f"/v1/runs/{to.run}/log"),
    "member: rehearsals": lambda to: to.ask(16, "POST", "/v1/rehearsals", {"job": SMALL}),
    "member: estimates": lambda to: to.ask(16, "POST", "/v1/estimates", {"job": SMALL}),
    "member: runs submitted": lambda to: to.ask(8, "POST", "/v1/runs", {"job": SMALL}),
    "member: uploads": lambda to: to.ask(8, "POST", "/v1/data/chunks", lambda: os.urandom(MIB)),
    "member: tiny uploads": lambda to: to.ask(8, "POST", "/v1/data/chunks", lambda: os.urandom(3)),
    "member: manifests of code": lambda to: to.ask(8, "POST", "/v1/code", manifest),
    "member: manifests of data": lambda to: to.ask(4, "POST", "/v1/data?name=x", data_manifest),
    "session: chunks of a byte": lambda to: to.session(8, "chunks"),
    "session: endless announcements": lambda to: to.session(8, "early"),
    "session: frames of a byte": lambda to: to.session(8, "frames"),
    "session: at full speed": lambda to: to.session(8, "stream"),
    "session: large messages that nobody reads": lambda to: to.session(60, "messages", read=False),
}  # fmt: skip


def manifest() -> bytes:
    """A new manifest of code, of many files."""
    files = [[f"{n:08}/{os.urandom(8).hex()}", 3, False, os.urandom(32).hex()] for n in range(5000)]
    return json.dumps({"commit": "", "diff": "", "files": files}, separators=(",", ":")).encode()


def data_manifest() -> bytes:
    """A manifest of data, of very many files."""
    files = [[f"{n:08}", 3, [os.urandom(32).hex()]] for n in range(100_000)]
    return json.dumps({"is_directory": True, "files": files}, separators=(",", ":")).encode()


class Watched:
    """The slowest answers that somebody of another team has got."""

    def __init__(self, port: int, headers: dict[str, str]) -> None:
        """At the gateway on *port*."""
        self._asked = {"/v1/health": {}, "/v1/nodes": headers}
        self._port = port

    def worst_s(self, lasts_s: float) -> dict[str, float]:
        """Of each question, within *lasts_s*."""
        worst = dict.fromkeys(self._asked, 0.0)

        def look(path: str, headers: dict[str, str]) -> None:
            end_s = time.monotonic() + lasts_s
            with httpx.Client(base_url=f"http://127.0.0.1:{self._port}", timeout=120) as client:
                while (began_s := time.monotonic()) < end_s:
                    client.get(path, headers=headers).raise_for_status()
                    took_s = time.monotonic() - began_s
                    worst[path] = max(worst[path], took_s)
                    time.sleep(max(0.05 - took_s, 0.0))

        threads = [threading.Thread(target=look, args=each) for each in self._asked.items()]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return worst


class Memory:
    """The most memory that the processes of a site take together, looked at by a process beside."""

    def __init__(self, site: LiveSite) -> None:
        """Of *site*; its runs' programs are no processes of its own."""
        self._roots = list(site.pids().values())
        self._most = FORK.Value("q", 0)
        FORK.Process(target=self._look, daemon=True).start()

    def most_bytes(self) -> int:
        """Since this was asked last."""
        with self._most.get_lock():
            found, self._most.value = self._most.value, 0
        return found

    def _look(self) -> None:
        while True:
            now_bytes = self._now_bytes()
            with self._most.get_lock():
                self._most.value = max(self._most.value, now_bytes)
            time.sleep(0.25)

    def _now_bytes(self) -> int:
        found = {}
        for root in self._roots:
            with suppress(psutil.Error):
                process = psutil.Process(root)
                for each in (process, *process.children(recursive=True)):
                    with suppress(psutil.Error, OSError):
                        if "FLOODS" not in " ".join(each.cmdline()):
                            found[each.pid] = _pss_bytes(each.pid)
        return sum(found.values())


def _pss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def attacked(target: Target, name: str) -> multiprocessing.process.BaseProcess:
    """A process of its own that does this attack until it is killed."""

    def attack() -> None:
        lowest_priority()
        ATTACKS[name](target)

    process = FORK.Process(target=attack, daemon=True)
    process.start()
    return process


def prepared(site: LiveSite) -> tuple[Target, Watched]:
    """The member's run, and who is attacked."""
    ledger = Ledger.open(site.ledger_url())
    of: Any = SimpleNamespace(ledger=ledger)
    member, watcher = (
        bearer(of, "eve", "speech", MEMBER),
        bearer(of, "bob", "speech", {Scope.WATCH}),
    )
    other = bearer(of, "ada", "vision", MEMBER)
    ledger.close()
    port, pages = (int(site.env[f"HEADWAY_{each}_PORT"]) for each in ("GATEWAY", "SESSIONS"))
    answer = httpx.post(
        f"http://127.0.0.1:{port}/v1/runs", json={"job": JOB}, headers=member, timeout=60
    )
    assert answer.is_success, answer.text
    target = Target(port, pages, member, watcher, answer.json()["run_id"])
    site.until(target.run, "Running")

    def listens() -> bool:
        path = f"http://127.0.0.1:{pages}{session_path(target.run)}ready"
        return httpx.get(path, headers=member, timeout=60).status_code == 200

    wait_for(listens, site.worker_log)
    return target, Watched(port, other)


def main() -> int:
    """Try each attack; a row for each, and whether all stay within the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--only", nargs="*", default=[], help="attacks whose names contain one")
    asked = parser.parse_args()
    chosen = [each for each in ATTACKS if not asked.only or any(o in each for o in asked.only)]
    rows: list[tuple[str, dict[str, float], int]] = []
    alone: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        Path(scratch).chmod(0o711)
        with live_site(Path(scratch) / "home", "process") as site:
            target, watched = prepared(site)
            watched.worst_s(asked.seconds)  # what a start does goes on for a while
            memory = Memory(site)
            watched.worst_s(asked.seconds)
            idle_bytes = memory.most_bytes()
            for name in chosen:
                alone.append(watched.worst_s(asked.seconds))
                memory.most_bytes()
                process = attacked(target, name)
                time.sleep(1)
                worst = watched.worst_s(asked.seconds)
                process.kill()
                process.join()
                rows.append((name, worst, memory.most_bytes() - idle_bytes))
                print(f"{name}: {worst} {rows[-1][2] / MIB:.0f} MiB", file=sys.stderr, flush=True)
                time.sleep(2)  # connections end
    return show(rows, alone)


def show(rows: list[tuple[str, dict[str, float], int]], alone: list[dict[str, float]]) -> int:
    """Print the table; 1 where a target is missed."""
    usual = {path: statistics.median(each[path] for each in alone) for path in alone[0]}
    told = ", ".join(f"{path} {1000 * each:.0f} ms" for path, each in usual.items())
    print(f"alone, the slowest of {len(alone)} times: {told}\n")
    print("| attack | health | nodes | more memory | |\n|---|---|---|---|---|")
    missed = 0
    for name, worst, more_bytes in rows:
        ratios = [worst[path] / usual[path] for path in usual]
        well = max(ratios) <= MOST_RATIO and more_bytes <= MOST_MORE_BYTES
        missed += not well
        shown = " | ".join(
            f"{1000 * worst[path]:.0f} ms, {ratio:.1f} ×"
            for path, ratio in zip(usual, ratios, strict=True)
        )
        print(f"| {name} | {shown} | {more_bytes / MIB:.0f} MiB | {'' if well else 'missed'} |")
    print(f"\n{len(rows) - missed} of {len(rows)} within the targets")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
