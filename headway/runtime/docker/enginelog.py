"""The log of a container whose image has no shell: fetched from the engine, stored once.

The engine is asked for what it has after a cursor, one stream at a time,
and the answer is appended to the attempt's log file. The cursor notes the
file's size, so that a fetch that was killed half-way is repeated, not doubled.
"""

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypedDict

from headway.durable import replace_file
from headway.runtime.docker.engine import Engine, asking
from headway.runtime.docker.status import moment

Fetch = Callable[[str, str], bytes]
"""(``stdout`` or ``stderr``, time after which) → the engine's lines with their times."""


class _Cursor(TypedDict):
    """What has been stored: bytes in the file, and the last time of each stream."""

    size: int
    times: dict[str, str]


STREAMS = ("stdout", "stderr")
_FETCHED_BYTES = 4 << 20
"""Of a stream at once: more would take memory, and long."""
_LINE = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z (.*)", re.DOTALL)


def fetch_into(log_path: Path, fetch: Fetch) -> None:
    """Append to *log_path* what the engine has beyond the stored cursor.

    Safe to call from several processes: one does it, the others wait.
    """
    cursor_path = log_path.with_name(log_path.name + ".cursor")
    fd = os.open(log_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        cursor = _load(cursor_path)
        os.ftruncate(fd, cursor["size"])
        lines: list[tuple[str, bytes]] = []
        for stream in STREAMS:
            after = cursor["times"][stream]
            new = parse(fetch(stream, after), after)
            lines += new
            cursor["times"][stream] = new[-1][0] if new else after
        if not lines:
            return
        data = b"".join(line for _, line in sorted(lines, key=lambda pair: pair[0]))
        os.pwrite(fd, data, cursor["size"])
        cursor["size"] += len(data)
        replace_file(cursor_path, json.dumps(cursor), lasts=False)
    finally:
        os.close(fd)


def _load(path: Path) -> _Cursor:
    """What was noted last; without it all that the engine has is fetched again."""
    try:
        cursor = json.loads(path.read_bytes())
        times = {stream: str(cursor["times"][stream]) for stream in STREAMS}
        return {"size": int(cursor["size"]), "times": times}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {"size": 0, "times": dict.fromkeys(STREAMS, "")}


def parse(answer: bytes, after: str) -> list[tuple[str, bytes]]:
    """The lines of *answer* later than *after*: (time, line with its newline).

    Times come out with nine digits, so that they sort as text.
    """
    found = []
    # Only a newline ends a line here; splitlines() would cut progress bars at their \r.
    for line in re.findall(rb"[^\n]+\n?", answer):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        stamp = f"{match[1].decode()}.{(match[2] or b'').decode():0<9}Z"
        if stamp > after:
            found.append((stamp, match[3]))
    return found


def logged(engine: Engine, name: str, stream: str, after: str) -> bytes:
    """The next that the engine has of a log; a little earlier too, as a float is not exact."""
    since = moment(after) if after else None
    with asking(f"read the log of container {name}"):
        pieces: Iterator[bytes] = engine.api.logs(
            name,
            stdout=stream == "stdout",
            stderr=stream == "stderr",
            timestamps=True,
            stream=True,
            since=None if since is None else since.timestamp() - 0.001,
        )
        answer = bytearray()
        for piece in pieces:
            answer += piece
            if len(answer) >= _FETCHED_BYTES:
                return bytes(answer[: answer.rfind(b"\n") + 1] or answer)
    return bytes(answer)
