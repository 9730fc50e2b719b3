"""Silent failures: a run that goes on, but not as its lease means it to."""

import enum
from dataclasses import dataclass
from datetime import datetime


class Silent(enum.StrEnum):
    """What goes wrong without an error."""

    GPU_UNUSED = "gpu_unused"
    """It holds a GPU and computes elsewhere: the CPU-fallback trap."""
    OVER_GRANT = "over_grant"
    """It holds more GPU memory than it was granted; what others were promised may not be there."""
    STARVED = "starved"
    """Its GPU waits for its processors: the data loader is too slow."""
    GPU_LOST = "gpu_lost"
    """Of versions before, which left a run on a GPU that fell off the bus."""


@dataclass(frozen=True, slots=True)
class SilentFailure:
    """One silent failure of one run on one GPU, with what was measured."""

    kind: Silent
    run_id: str
    gpu: str
    measured: float
    """Mean utilisation 0..1, or bytes for `OVER_GRANT`; 0 for `GPU_LOST`."""
    limit: float
    """What it was compared with, in the same unit."""
    text: str
    """One sentence with the numbers and the next step."""


@dataclass(frozen=True, slots=True)
class RunWarning:
    """A silent failure as the ledger keeps it."""

    attempt: int
    failure: SilentFailure
    """As it was measured last."""
    began_at: datetime
    ended_at: datetime | None = None
    """When it was no longer so, or its attempt had ended; None while it goes on."""
    stopped_at: datetime | None = None
    """When the site's policy ended the attempt for it; None when it did not."""
