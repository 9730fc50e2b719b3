"""What was held of the site, by whom, for how long."""

from dataclasses import dataclass
from datetime import datetime

from headway.model.lease import GpuGrant
from headway.model.run import Measurement


@dataclass(frozen=True, slots=True)
class Holding:
    """One lease, live or released, with what was measured of the attempt that had it."""

    run_id: str
    team: str
    user: str
    node: str
    began_at: datetime
    ended_at: datetime | None
    """None while it is held."""
    cpus: float
    host_memory_bytes: int
    gpus: tuple[GpuGrant, ...]
    program: tuple[datetime, datetime | None] | None = None
    """From the start to the end of its program; None where it did not start."""
    measured: Measurement | None = None
    """None where nothing could be measured; of an attempt that goes on there is little."""
