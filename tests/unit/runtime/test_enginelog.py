"""The engine's answer becomes lines."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.runtime.docker.enginelog import fetch_into, logged, parse


def test_lines_after_the_cursor_are_kept() -> None:
    answer = (
        b"2026-01-01T00:00:00.5Z old\n"
        b"2026-01-01T00:00:00.500000001Z new 2026-01-01T00:00:00Z\n"
        b"2026-01-01T00:00:01Z \r 50%\n"
        b"2026-01-01T00:00:02.25Z no newline"
    )
    assert parse(answer, "2026-01-01T00:00:00.500000000Z") == [
        ("2026-01-01T00:00:00.500000001Z", b"new 2026-01-01T00:00:00Z\n"),
        ("2026-01-01T00:00:01.000000000Z", b"\r 50%\n"),
        ("2026-01-01T00:00:02.250000000Z", b"no newline"),
    ]


@pytest.mark.parametrize("cut", [b"", b'{"size": 5', b"[]", b'{"size": 5, "times": {}}', b"\xff"])
def test_without_its_cursor_the_log_is_fetched_anew_and_nothing_twice(
    tmp_path: Path, cut: bytes
) -> None:
    log = tmp_path / "run.log"

    def fetch(stream: str, after: str) -> bytes:
        line = b"2026-01-01T00:00:01Z one\n" if stream == "stdout" else b""
        return line if after < "2026-01-01T00:00:01" else b""

    fetch_into(log, fetch)
    (tmp_path / "run.log.cursor").write_bytes(cut)
    fetch_into(log, fetch)
    assert log.read_bytes() == b"one\n"


def test_a_flood_is_fetched_in_parts_of_whole_lines() -> None:
    line = b"2026-01-01T00:00:00.5Z yes\n"
    asked = 0

    def endless(*_: object, **__: object) -> Iterator[bytes]:
        nonlocal asked
        while True:
            asked += 1
            yield line * 1000 + line[:7]
            yield line[7:]

    engine: Any = SimpleNamespace(api=SimpleNamespace(logs=endless))
    answer = logged(engine, "run-1", "stdout", "")
    assert answer == line * (len(answer) // len(line))
    assert len(answer) > 1 << 20
    assert asked < 1000
