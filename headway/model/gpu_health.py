"""The health of a GPU: what is seen of it, and why one takes no runs."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


class Sickness(enum.StrEnum):
    """What a GPU may have."""

    LOST = "lost"
    """It fell off the bus, or must be reset."""
    XID = "xid"
    """The driver reported an Xid that is not a program's fault."""
    XID_CONTAINED = "xid_contained"
    """It reported one that ends at most the program that it struck."""
    ECC = "ecc"
    """Errors of its memory that could not be corrected."""
    ROW_REMAP = "row_remap"
    """A bad row of its memory could not be replaced."""
    LINK_WIDTH = "link_width"
    """While it works it has fewer PCIe lanes than it and its slot could have."""
    HOT = "hot"
    """It is as hot as where its hardware slows it down."""
    STRANGERS = "strangers"
    """Programs that are no run's use it, where the operator lets it be drained for that."""


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """What NVML says of one GPU's health; None where GPU or driver does not tell it."""

    uuid: str
    xids: tuple[int, ...] = ()
    """Reported since it was last taken for well."""
    ecc_uncorrectable: int | None = None
    """Errors since the driver was loaded or the GPU reset."""
    remap_failed: bool | None = None
    busy: bool | None = None
    """Whether a program computes on it: an idle one may lower its link's width."""
    lanes: int | None = None
    lanes_at_most: int | None = None
    temperature_c: float | None = None
    slowdown_c: float | None = None
    strangers: str = ""
    """Whose programs on it are no run's, in words."""


@dataclass(frozen=True, slots=True)
class GpuDrain:
    """Why a GPU takes no runs; it stays so until its agent has found it well again."""

    since: datetime
    why: Mapping[Sickness, str]
    reset_at: datetime | None = None
    """When an operator said that it was reset; None once its agent has looked."""

    @property
    def told(self) -> str:
        """All that it has."""
        return "; ".join(self.why.values())
