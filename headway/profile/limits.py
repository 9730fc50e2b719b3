"""What bounds a copy: the link it goes over, or the GPU's memory."""

from collections.abc import Iterator, Sequence

from headway.model.link import GpuLinks, NvLink, Pcie
from headway.model.profile import Direction


def limit_of(
    direction: Direction, links: Sequence[GpuLinks], *, memory_bytes_per_s: float | None = None
) -> tuple[str, float | None]:
    """Name and rate, in bytes/s, of what bounds copies of *direction*; the slowest GPU's.

    Host copies go over PCIe, copies to a peer over NVLink where there is
    one. A copy within a GPU reads and writes each byte, so it is bound by
    half of what its memory moves.
    """
    if direction is Direction.DEVICE_TO_DEVICE:
        return ("memory", memory_bytes_per_s / 2) if memory_bytes_per_s else ("", None)
    slowest: tuple[str, float | None] = "", None
    for each in links:
        link: Pcie | NvLink | None = each.pcie_at_most or each.pcie
        if direction is Direction.PEER_TO_PEER and each.nvlink is not None:
            link = each.nvlink
        rate = link.bytes_per_s if link is not None else None
        if rate is not None and (slowest[1] is None or rate < slowest[1]):
            slowest = str(link), rate
    return slowest


def link_notes(links: Sequence[GpuLinks]) -> Iterator[str]:
    """A sentence for each GPU whose PCIe link is below what it is able to do."""
    for each in links:
        now, best = each.pcie, each.pcie_at_most
        if now is None or best is None or now == best:
            continue
        reason = (
            "an idle GPU lowers its generation"
            if now.lanes == best.lanes
            else "it has fewer lanes than GPU and slot offer: look at riser and slot"
        )
        yield f"{each.uuid} was at {_with_rate(now)} of {_with_rate(best)}: {reason}"


def _with_rate(link: Pcie) -> str:
    rate = link.bytes_per_s
    return str(link) if rate is None else f"{link} ({rate / 1e9:.1f} GB/s)"
