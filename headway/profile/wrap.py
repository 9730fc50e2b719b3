"""The words before a program's own command that put it under Nsight Systems."""

from pathlib import Path

WINDOW_S = 300
"""Nsight Systems records so much from the program's start; the program goes on after it.
A report grows by megabytes a second of training, and repeats itself."""

_ENTRY = Path(__file__).with_name("entry.sh")


def wrapper(folder: str, grace_s: float, offered: str = "") -> tuple[str, ...]:
    """What to put before the program's command.

    Args:
        folder: Directory for the report, as the program sees it; emptied first.
        grace_s: Between SIGTERM and SIGKILL.
        offered: Directory of an installation of nsys, as the program sees
            it, for images that have none.
    """
    script = _ENTRY.read_text()
    return ("/bin/sh", "-c", script, "headway", folder, f"{grace_s:.0f}", str(WINDOW_S), offered)
