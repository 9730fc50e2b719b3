"""What tests have left behind on this machine: processes and databases of the sites they made."""

import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from headway.ledger import hosting

_LEAVING_S = 20.0
"""For a process that was told to end a moment ago."""


def left_behind(base: Path, leaving_s: float = _LEAVING_S) -> list[str]:
    """What is left of the sites whose homes lie below *base*, in words; empty if nothing is."""
    end = time.monotonic() + leaving_s
    while (processes := sorted(_processes(base))) and time.monotonic() < end:
        time.sleep(0.2)
    return [*processes, *sorted(_databases(base))]


def _processes(base: Path) -> Iterator[str]:
    """Each process of a site below *base*: its environment or its command says so."""
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            home, words = process.environ().get("HEADWAY_HOME", ""), process.cmdline()
        except psutil.Error:  # it has ended, or is another user's
            continue
        if Path(home).is_relative_to(base) or any(f"{base}/" in word for word in words):
            yield f"process {process.pid}: {' '.join(words)[:200]}"


def _databases(base: Path) -> Iterator[str]:
    """Each cluster of a site below *base* that lies elsewhere: nobody will ever remove it."""
    for note in base.rglob("database.url"):
        folder = hosting.folder_of(note.read_text().strip())
        if folder.exists() and not folder.is_relative_to(base):
            yield f"database {folder} of the home {note.parent}"
