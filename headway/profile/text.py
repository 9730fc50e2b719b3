"""How a profile is shown: lines for people, plain data with documented keys for machines."""

from dataclasses import asdict
from typing import Any

from headway.model.profile import Copies, GpuKernel, Profile
from headway.profile.activity import activity_text, clocks_text
from headway.units import format_duration, format_size


def copies_text(copies: Copies) -> str:
    """Such as ``HtoD 9.0 of 15.8 GB/s (57 %), 12.4 GiB in 1.4 s``."""
    rate = f"{copies.direction} {copies.bytes_per_s / 1e9:.1f}"
    limit = copies.limit_bytes_per_s
    if limit:
        share = copies.bytes_per_s / limit
        rate += f" of {limit / 1e9:.1f} GB/s ({share * 100:.0f} %)"
    else:
        rate += " GB/s"
    parts = [rate, f"{format_size(copies.size_bytes)} in {_short(copies.busy_s)}"]
    if copies.peak_bytes_per_s is not None:
        parts.append(f"at most {copies.peak_bytes_per_s / 1e9:.1f} GB/s")
    if copies.pageable_bytes and copies.size_bytes:
        pageable = copies.pageable_bytes / copies.size_bytes
        parts.append(f"{pageable * 100:.0f} % of it through pageable memory")
    return ", ".join(parts)


def rows(profile: Profile) -> list[dict[str, str]]:
    """The profile as a table: copies first, then the kernels that took most time."""
    made = [
        {"what": copies_text(each), "over": each.link or "–", "where": each.gpu or "all its GPUs"}
        for each in profile.copies
    ]
    made += [
        {"what": _kernel_text(each, profile), "over": "kernel", "where": "all its GPUs"}
        for each in profile.kernels
    ]
    return made


def _kernel_text(kernel: GpuKernel, profile: Profile) -> str:
    share = kernel.total_s / profile.kernels_s if profile.kernels_s else 0.0
    return (
        f"{kernel.name}: {_short(kernel.total_s)} ({share * 100:.0f} % of all kernels) "
        f"in {kernel.launches:,} launches"
    )


def summary(profile: Profile) -> str:
    """One line: who counted, for how long, what the GPUs did, and what that means."""
    over = f" over {format_duration(profile.window_s)}" if profile.window_s else ""
    parts = [f"{profile.source.value}{over}"]
    if profile.kernels_s is not None and profile.window_s:
        parts.append(f"kernels {_short(profile.kernels_s)}")
    activity = activity_text(profile)
    if profile.busy_frac is not None and not activity:
        parts.append(f"kernels ran {profile.busy_frac * 100:.0f} % of the time")
    counted = ", ".join(parts)
    return "; ".join(filter(None, (counted, activity, clocks_text(profile.activity))))


def profile_view(profile: Profile) -> dict[str, Any]:
    """What `headway profile --json` prints."""
    return {
        "source": profile.source.value,
        "window_s": profile.window_s,
        "copies": [
            {
                "direction": each.direction.value,
                "gpu": each.gpu or None,
                "bytes": each.size_bytes,
                "seconds": each.busy_s,
                "bytes_per_s": each.bytes_per_s,
                "peak_bytes_per_s": each.peak_bytes_per_s,
                "link": each.link or None,
                "limit_bytes_per_s": each.limit_bytes_per_s,
                "count": each.count,
                "pageable_bytes": each.pageable_bytes,
                "text": copies_text(each),
            }
            for each in profile.copies
        ],
        "kernels": [
            {"name": each.name, "launches": each.launches, "seconds": each.total_s}
            for each in profile.kernels
        ],
        "kernels_s": profile.kernels_s,
        "busy_frac": profile.busy_frac,
        "activity": asdict(profile.activity),
        "notes": list(profile.notes),
        "report": profile.report or None,
        "text": summary(profile),
    }


def _short(seconds: float) -> str:
    """A duration; below a second in smaller units, since copies are short."""
    if seconds >= 1.0 or seconds == 0.0:
        return format_duration(seconds)
    return f"{seconds * 1e3:.0f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"
