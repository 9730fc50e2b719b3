"""What the site knows of a folder of code that somebody has sent."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class KeptCode:
    """One folder of one team."""

    team: str
    code_id: str
    commit_id: str
    """Of git; empty where the folder was in no repository."""
    diff: str
    """What it differed in from the commit; the beginning of it where that is long."""
    files: int
    size_bytes: int
    used_at: datetime
    """When it was last sent or submitted."""
    is_kept: bool
    """Whether its content is here still."""
    manifest_bytes: int = 0
    """What its list of files takes in the ledger."""
    is_needed: bool = False
    """A run that has not ended needs it."""
