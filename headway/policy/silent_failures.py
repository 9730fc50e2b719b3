"""Which running runs fail silently, and what the site does about it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from headway.model.lease import GpuGrant, Lease, Sharing
from headway.model.run import Exit, ExitKind
from headway.model.run_warning import RunWarning, Silent, SilentFailure
from headway.model.telemetry import TelemetryPoint
from headway.policy.settings import OnSilentFailure, PolicySettings
from headway.units import format_duration, format_size

UNUSED_FRAC = 0.02
"""Below this mean utilisation a GPU counts as not used."""
IDLE_SHARE = 0.9
"""Of the seconds that were seen: a GPU that was idle in so many of them counts as not used, too, so
that a short burst of work now and then does not make up for the rest."""
STARVED_FRAC = 0.3
"""Below this mean utilisation a GPU that is used waits more than it works."""
BUSY_HOST_FRAC = 0.8
"""Of the CPUs that a lease has: above it, the data loader is what the GPU waits for."""
ENDED_FOR = frozenset({Silent.GPU_UNUSED, Silent.OVER_GRANT})
"""What a site may end a run for: a starved GPU is slow, but is being used."""


def silent_failures(
    lease: Lease,
    points: Mapping[str, Sequence[TelemetryPoint]],
    *,
    cpu_used: float | None,
    elapsed_s: float,
    after_s: float,
) -> list[SilentFailure]:
    """What goes wrong silently in the run that holds *lease*.

    Only a GPU that no other run has memory on is judged by its utilisation, as
    NVML does not say whose kernels run; on a shared one a run that never had
    memory there does not use it. Nothing is said of use before *after_s*
    seconds of points, nor of utilisation where the driver does not tell it; nor
    of bursts before twice that: starting up is no rest between two of them.

    Args:
        lease: With its GPUs.
        points: Of each GPU by uuid, one a second of the last two *after_s*, oldest first.
        cpu_used: Processors that the run used on average meanwhile; None when unknown.
        elapsed_s: Since the run's start.
        after_s: Starting up and loading data take a while.
    """
    found = []
    for grant in lease.gpus:
        seen = points.get(grant.uuid, ())
        held = seen[-1].run_bytes.get(lease.run_id, 0) if seen else 0
        # Of a GPU that it has alone, the run may take the reserve too: nobody is promised it.
        if held > grant.memory_bytes and grant.sharing is Sharing.SHARED:
            text = (
                f"holds {format_size(held)} on {grant.uuid}, was granted "
                f"{format_size(grant.memory_bytes)}; others may run out of memory. "
                "Raise resources.gpu_memory"
            )
            found.append(
                SilentFailure(
                    Silent.OVER_GRANT, lease.run_id, grant.uuid, held, grant.memory_bytes, text
                )
            )
        if len(seen) < after_s:
            continue
        # A slow start is no rest between two bursts of work.
        judges_bursts = elapsed_s >= 2 * after_s
        misuse = _misuse(lease, grant, seen, cpu_used, after_s, judges_bursts=judges_bursts)
        if misuse is not None:
            found.append(misuse)
    return found


def _misuse(
    lease: Lease,
    grant: GpuGrant,
    seen: Sequence[TelemetryPoint],
    cpu_used: float | None,
    after_s: float,
    *,
    judges_bursts: bool,
) -> SilentFailure | None:
    run_id, gpu = lease.run_id, grant.uuid
    on_cpu = "it may run on the CPU. See that the framework finds the GPU (CUDA build, driver)"
    if not all(set(point.run_bytes) <= {run_id} for point in seen):
        if any(point.run_bytes.get(run_id) for point in seen):
            return None
        lasted = format_duration(len(seen))
        text = f"holds a share of {gpu}, and had no memory there over {lasted}; {on_cpu}"
        return SilentFailure(Silent.GPU_UNUSED, run_id, gpu, 0.0, UNUSED_FRAC, text)
    busy = [point.busy_frac for point in seen if point.busy_frac is not None]
    if len(busy) < after_s:
        return None
    mean_frac, used = sum(busy) / len(busy), cpu_used or 0.0
    if mean_frac < UNUSED_FRAC:
        lasted = format_duration(len(busy))
        text = f"holds {gpu}, which was {mean_frac:.1%} busy over {lasted}; {on_cpu}"
        return SilentFailure(Silent.GPU_UNUSED, run_id, gpu, mean_frac, UNUSED_FRAC, text)
    if mean_frac < STARVED_FRAC and used >= BUSY_HOST_FRAC * lease.cpus:
        text = (
            f"leaves {gpu} {mean_frac:.0%} busy while it uses {used:.1f} CPUs, with {lease.cpus:g} "
            "of its own; the GPU waits for data. Raise resources.cpus and the number of loading "
            "threads"
        )
        return SilentFailure(Silent.STARVED, run_id, gpu, mean_frac, STARVED_FRAC, text)
    return _idle_but_for_bursts(run_id, gpu, busy, after_s) if judges_bursts else None


def _idle_but_for_bursts(
    run_id: str, gpu: str, busy: Sequence[float], start_s: float
) -> SilentFailure | None:
    """From the first burst on: what is before it, up to *start_s*, may be the start."""
    first = next((at for at, each in enumerate(busy) if each >= UNUSED_FRAC), 0)
    busy = busy[min(first, int(start_s)) :]
    idle_frac = sum(each < UNUSED_FRAC for each in busy) / len(busy)
    if idle_frac < IDLE_SHARE:
        return None
    text = (
        f"holds {gpu}, which was idle in {idle_frac:.0%} of the last {format_duration(len(busy))}, "
        "for all its bursts. Give the GPU back between them, or do that work on CPUs in a run of "
        "its own"
    )
    return SilentFailure(Silent.GPU_UNUSED, run_id, gpu, 1 - idle_frac, 1 - IDLE_SHARE, text)


def to_end_for(
    warnings: Sequence[RunWarning], *, now: datetime, settings: PolicySettings, is_guess: bool
) -> RunWarning | None:
    """The warning for which the site ends the run now; None as long as it only warns.

    Args:
        warnings: What goes on in the run.
        now: The ledger's time.
        settings: The operator's.
        is_guess: Whether nobody said how much memory of a GPU it needs, and no run has shown
            it: that it holds more is no fault of its own.
    """
    if settings.on_silent_failure is OnSilentFailure.WARN:
        return None
    ends = ENDED_FOR - {Silent.OVER_GRANT} if is_guess else ENDED_FOR
    for warning in warnings:
        lasted_s = (now - warning.began_at).total_seconds()
        if warning.failure.kind in ends and lasted_s >= settings.silent_grace_s:
            return warning
    return None


def exit_told(exit_: Exit, warnings: Sequence[RunWarning]) -> Exit:
    """*exit_*, or that the site's policy really ended the attempt, as one of its *warnings* says.

    A run that the policy ended has failed, also when it obeyed with exit 0; it is not repeated.
    """
    cause = next((w for w in warnings if w.stopped_at is not None), None)
    if cause is None:
        return exit_
    said = f"stopped by the site's policy on silent failures: it {cause.failure.text}"
    return Exit(ExitKind.FAILED, exit_.code, said)
