"""The same table from NVML's counters, for runs that nsys does not see. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from headway.model.link import GpuLinks, NvLink, Pcie
from headway.model.profile import Copies, Direction, Profile, ProfileSource
from headway.model.telemetry import TelemetryPoint


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


_RATES: tuple[tuple[Direction, str, Callable[[TelemetryPoint], float | None]], ...] = (
    # What a GPU receives over PCIe comes from the host, what it sends goes there.
    (Direction.HOST_TO_DEVICE, "pcie", lambda point: point.pcie_rx_bytes_per_s),
    (Direction.DEVICE_TO_HOST, "pcie", lambda point: point.pcie_tx_bytes_per_s),
    (Direction.PEER_TO_PEER, "nvlink", lambda point: point.nvlink_rx_bytes_per_s),
)


def from_counters(
    series: Mapping[str, Sequence[TelemetryPoint]], links: Sequence[GpuLinks], why: str
) -> Profile:
    """A profile from the telemetry of the run's GPUs.

    Args:
        series: GPU's uuid → its points over the window.
        links: How these GPUs are connected; those that are missing have no limit.
        why: Why nsys has no part in it, as a sentence.
    """
    by_uuid = {each.uuid: each for each in links}
    copies, busy, window_s = [], [], 0.0
    for gpu, points in series.items():
        window_s = max(window_s, sum(point.period_s for point in points))
        busy += [(p.busy_frac, p.period_s) for p in points if p.busy_frac is not None]
        own = [by_uuid[gpu]] if gpu in by_uuid else []
        for direction, over, rate_of in _RATES:
            seen = [(rate, p.period_s) for p in points if (rate := rate_of(p)) is not None]
            if not seen or (over == "nvlink" and not any(rate for rate, _ in seen)):
                continue  # not told; no NVLink, or nobody used it
            copies.append(
                Copies(
                    direction,
                    int(sum(rate * period_s for rate, period_s in seen)),
                    float(sum(period_s for _, period_s in seen)),
                    *limit_of(direction, own),
                    gpu=gpu,
                    peak_bytes_per_s=max(rate for rate, _ in seen),
                )
            )
    notes = [why, "NVML samples all traffic of a GPU, also of other runs that share it"]
    if not copies:
        nothing = "no PCIe or NVLink traffic of its GPUs was read in this time"
        notes[1:] = [nothing if series else "the run held no GPU, whose copies could be counted"]
    observed_s = sum(period_s for _, period_s in busy)
    return Profile(
        ProfileSource.NVML,
        window_s,
        copies=tuple(copies),
        busy_frac=sum(f * period_s for f, period_s in busy) / observed_s if observed_s else None,
        notes=(*notes, *link_notes(links)),
    )
