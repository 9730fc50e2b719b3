"""Which GPUs are sick, and of what.

Whose fault an Xid is goes by the immediate action in NVIDIA's catalog (docs.nvidia.com/deploy/
xid-errors/analyzing-xid-catalog.html, Ampere and newer): one after which the program is to be
started again is that program's, one that asks for a reset or a restart of the machine the GPU's,
one that is to be ignored nobody's. Three differ, by the catalog's own words: 43 and 137 are
"typically application errors" although the GPU is to be left alone; 94 is the GPU's memory, which
may go on "until the reset can be performed".
"""

import enum
from collections.abc import Iterable, Mapping

from headway.model.gpu_health import GpuHealth, Sickness


class Fault(enum.StrEnum):
    """Whose an Xid is."""

    PROGRAM = "the program's"
    GPU = "the GPU's"
    NOBODY = "nobody's"
    """It only tells: nothing has failed."""


_CATALOG: tuple[tuple[Fault, str, tuple[int, ...]], ...] = (
    (Fault.PROGRAM, "GPU stopped processing", (8, 43)),
    (Fault.PROGRAM, "invalid or corrupted push buffer stream", (11, 25, 32)),
    (Fault.PROGRAM, "graphics engine exception", (13,)),
    (Fault.PROGRAM, "GPU memory page fault", (31,)),
    (Fault.PROGRAM, "copy engine exception", (39, 40, 41, 70, 71, 72, 75, 76, 77, 85)),
    (Fault.PROGRAM, "copy engine exception", tuple(range(126, 136))),
    (Fault.PROGRAM, "cleanup behind a program that has ended", (45,)),
    (Fault.PROGRAM, "video engine exception", (47, 60, 65, 68, 73, 83, 84, 88)),
    (Fault.PROGRAM, "video engine exception", (89, 96, 97, 98, 142)),
    (Fault.PROGRAM, "graphics engine class error", (69,)),
    (Fault.PROGRAM, "corrupted data sent to the GPU", (80,)),
    (Fault.PROGRAM, "JPEG engine exception", (82, *range(99, 106))),
    (Fault.PROGRAM, "optical flow engine exception", (86, 139)),
    (Fault.PROGRAM, "NVLink privilege error", (137,)),
    (Fault.GPU, "GPU stopped processing", (46,)),
    (Fault.GPU, "double bit ECC error", (48,)),
    (Fault.GPU, "auxiliary power is not connected", (54,)),
    (Fault.GPU, "internal micro-controller halt", (61, 62, 169)),
    (Fault.GPU, "row remapping failed", (64,)),
    (Fault.GPU, "NVLink error", (74, 136, 149, 150, 155)),
    (Fault.GPU, "GPU has fallen off the bus", (79,)),
    (Fault.GPU, "contained memory error", (94,)),
    (Fault.GPU, "uncontained memory error", (95,)),
    (Fault.GPU, "context switch timeout", (109,)),
    (Fault.GPU, "security fault", (110, 151)),
    (Fault.GPU, "GSP error", (119, 120)),
    (Fault.GPU, "unrecovered memory error", (140, 171, 172)),
    (Fault.GPU, "GPU initialization error", (143,)),
    (Fault.GPU, "a part of it was retired", (156,)),
    (Fault.GPU, "fatal timeout", (158, 167)),
    (Fault.NOBODY, "injected or of a test", (14, 106, 107)),
    (Fault.NOBODY, "driver firmware", (37, 38, 44, 66, 67, 141)),
    (Fault.NOBODY, "row remapping recorded", (63,)),
    (Fault.NOBODY, "vGPU did not start", (78,)),
    (Fault.NOBODY, "high single-bit ECC error rate", (92,)),
    (Fault.NOBODY, "InfoROM is not written", (93,)),
    (Fault.NOBODY, "corrected link error", (108, 121)),
    # Those that are fatal are followed by 48.
    (Fault.NOBODY, "NVLink event", (144, 145, 146, 147, 148)),
    (Fault.NOBODY, "DLA error", (152, 153)),
    (Fault.NOBODY, "recovery action of another Xid", (154,)),
    (Fault.NOBODY, "channel or resource retirement", (157, 160, 161)),
    (Fault.NOBODY, "CHI non-data error", (159,)),
    (Fault.NOBODY, "power smoothing", (162, 163, 164, 165)),
    (Fault.NOBODY, "confidential computing", (166, 170)),
    (Fault.NOBODY, "error in the write protected region", (168,)),
)
XIDS: Mapping[int, tuple[Fault, str]] = {
    xid: (fault, meaning) for fault, meaning, xids in _CATALOG for xid in xids
}
CONTAINED = frozenset({74, 94})
"""Xids of the GPU after which the programs that go on may: one that was struck fails by itself."""
NOT_READ_AGAIN = frozenset({Sickness.XID, Sickness.XID_CONTAINED})
"""What is told once: that it is not seen again says nothing."""
_ENDS_RUNS = frozenset({Sickness.LOST, Sickness.XID, Sickness.ROW_REMAP})
LASTS_S = {Sickness.LINK_WIDTH: 10.0, Sickness.HOT: 10.0, Sickness.STRANGERS: 10.0}
"""How long every look has found it before that counts: a link that saves power, a peak of heat, and
a run's program whose container is not known yet are over soon. Everything else counts at once."""
PASSES_S = {Sickness.HOT: 10.0, Sickness.STRANGERS: 10.0}
"""How long it has to be over before the GPU is taken back without a reset."""


def ends_runs(why: Iterable[Sickness]) -> bool:
    """Whether what runs on a GPU that has *why* is to be stopped, and not only nothing new start.

    Not for what a run may well get over, such as heat or a slow link.
    """
    return not _ENDS_RUNS.isdisjoint(why)


def fault_of(xid: int) -> Fault:
    """Whose *xid* is; one that the table does not know is the GPU's, until somebody has looked."""
    return XIDS[xid][0] if xid in XIDS else Fault.GPU


def xid_told(xid: int) -> str:
    """*xid* with its meaning."""
    return f"Xid {xid} ({XIDS[xid][1] if xid in XIDS else 'not in the table of known ones'})"


def sicknesses(seen: GpuHealth) -> dict[Sickness, str]:
    """What the GPU has, with the figures; what is not told of it is no sickness.

    A row that waits to be remapped is none: programs may go on and start, by NVIDIA's "GPU memory
    error management".
    """
    found = {}
    xids = sorted({xid for xid in seen.xids if fault_of(xid) is Fault.GPU})
    for kind, of_it in (
        (Sickness.XID, [xid for xid in xids if xid not in CONTAINED]),
        (Sickness.XID_CONTAINED, [xid for xid in xids if xid in CONTAINED]),
    ):
        if of_it:
            found[kind] = ", ".join(xid_told(xid) for xid in of_it)
    if seen.ecc_uncorrectable:
        found[Sickness.ECC] = "memory errors that ECC could not correct"
    if seen.remap_failed:
        found[Sickness.ROW_REMAP] = "a bad row of its memory could not be remapped"
    if seen.busy and seen.lanes and seen.lanes_at_most and seen.lanes < seen.lanes_at_most:
        found[Sickness.LINK_WIDTH] = f"PCIe x{seen.lanes} of x{seen.lanes_at_most}"
    if seen.strangers:
        found[Sickness.STRANGERS] = seen.strangers
    if is_cool(seen) is False:
        hot, limit = seen.temperature_c, seen.slowdown_c
        found[Sickness.HOT] = f"{hot:g} °C, and its hardware slows down at {limit:g}"
    return found


def is_over(seen: GpuHealth, kind: Sickness) -> bool:
    """Whether *kind*, which passes, is known to be over."""
    return is_cool(seen) is True if kind is Sickness.HOT else kind not in sicknesses(seen)


def is_cool(seen: GpuHealth) -> bool | None:
    """Whether it is cooler than where its hardware slows it down; None where that is not told."""
    if seen.temperature_c is None or not seen.slowdown_c:
        return None
    return seen.temperature_c < seen.slowdown_c
