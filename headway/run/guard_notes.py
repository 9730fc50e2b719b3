"""What the node's guard keeps on the disk: the last renewals, and what it stopped.

A guard that is started anew has to know when each lease was renewed, also
while the ledger is away; a flow has to know that it was the guard that stopped
its container, and not the program's own failure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from headway.durable import replace_file
from headway.telemetry.host import boot_id


@dataclass(frozen=True, slots=True)
class Renewal:
    """The last renewal of one attempt's lease that succeeded."""

    at_s: float
    """When it was asked for, by the clock that runs on while the machine sleeps."""
    expires: bool
    """Whether the ledger let the lease expire."""
    grace_s: float
    """Of the attempt's job."""


@dataclass(frozen=True)
class GuardNotes:
    """All of it."""

    boot_id: str
    """The clock begins anew with each boot."""
    renewals: Mapping[str, Renewal] = field(default_factory=dict)
    """By container, those to come too."""
    stopped: Mapping[str, str] = field(default_factory=dict)
    """By container, why the guard stopped it."""


_NOTES = TypeAdapter(GuardNotes)


def read_notes(state_dir: Path) -> GuardNotes:
    """What was kept; nothing of another boot, nor of a file that cannot be read."""
    here = boot_id()
    try:
        notes = _NOTES.validate_json((state_dir / _FILE).read_bytes())
    except (OSError, ValidationError):
        return GuardNotes(here)
    return notes if notes.boot_id == here else GuardNotes(here)


def keep_notes(state_dir: Path, notes: GuardNotes) -> None:
    """Keep *notes*. They need not outlive the machine, so nothing is synced to the disk."""
    replace_file(state_dir / _FILE, _NOTES.dump_json(notes), lasts=False)


_FILE = "guard.notes.json"
