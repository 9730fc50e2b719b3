"""The engine's answer becomes lines."""

from headway.runtime.docker.enginelog import parse


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
