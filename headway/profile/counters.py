"""The same table from NVML's counters, for runs that nsys does not see. Pure."""

from collections.abc import Callable, Mapping, Sequence

from headway.model.link import GpuLinks
from headway.model.profile import Copies, Direction, Profile, ProfileSource
from headway.model.telemetry import TelemetryPoint
from headway.profile.limits import limit_of, link_notes

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
