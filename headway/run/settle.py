"""Settles an attempt that has ended: how, what it used, what it teaches, and what follows."""

from dataclasses import replace

from headway.clock import booted_at
from headway.forecast import Forecaster
from headway.model.attempt_record import Failures
from headway.model.lease import Demand
from headway.model.run import Exit, ExitKind, Measurement
from headway.policy.conclude import AttemptEnd, Ended, Had, conclude, grown, preempted, restarted
from headway.policy.silent_failures import exit_told
from headway.run.admit import forecast
from headway.run.followed import Followed
from headway.run.here import NodeAttempt
from headway.run.memory_growth import with_growth
from headway.run.memory_shortage import shortage_of, with_shortage
from headway.run.rendezvous import end_of_gang
from headway.run.traces import CUT_SHORT, lesson, trace_of
from headway.runtime.outcome import ended_by_restart
from headway.this_node import lost_here


def settle(attempt: NodeAttempt, followed: Followed, kept: str = "") -> tuple[Exit, Measurement]:
    """Classify the end of *attempt*, learn from it, and put what follows into the ledger.

    *kept* says what became of the files that its program has written; empty where there are none.
    """
    record, forecaster = attempt.record, attempt.forecaster
    demand = record.demand or forecast(attempt, record, forecaster, attempt.lease)[1]
    exit_, above_bytes = _exit(attempt, followed, record.preempted_for)
    if followed.memory_limit_bytes > demand.host_memory_bytes:
        exit_ = with_growth(exit_, demand.host_memory_bytes, followed)
        demand = replace(demand, host_memory_bytes=followed.memory_limit_bytes)
    exit_ = replace(exit_, message="; ".join(filter(None, (exit_.message, kept))))
    measured = _measured(attempt, followed, demand, forecaster)
    # A profiler takes time and memory of its own: nothing is learned from such a run.
    if not attempt.is_rank and not attempt.job.profile:
        gpu_type = forecaster.gpu_type(attempt.lease) if attempt.lease is not None else ""
        # Nothing of a run on GPUs of several types, which is as slow as the slowest: it has none.
        learnt = lesson_of(attempt, exit_, measured, demand, above_bytes)
        if gpu_type and learnt is not None:
            trace = trace_of(attempt, exit_, demand, learnt, gpu_type, started_at=record.started_at)
            attempt.site.ledger.traces.learn(attempt.fence, trace)
    held = [grant.memory_bytes for grant in attempt.lease.gpus] if attempt.lease else []
    had = Had(
        demand,
        host_peak_bytes=measured.host_peak_bytes,
        gpu_bytes=max(held, default=0),
        gpu_above_bytes=above_bytes,
        spaces=forecaster.spaces(record.pool, record.queue),
        nodes=attempt.job.nodes,
    )
    return conclude_attempt(attempt, exit_, measured, had), measured


def conclude_attempt(
    attempt: NodeAttempt, exit_: Exit, measured: Measurement | None = None, had: Had | None = None
) -> Exit:
    """Decide what follows an attempt that ended so, and put it into the ledger.

    Args:
        attempt: The attempt.
        exit_: How it ended.
        measured: What it used; None where it ended before its container did.
        had: What it had; None in the same case.

    Returns:
        The exit, with what follows; another one where the run was ended meanwhile.
    """
    runs, run_id = attempt.site.ledger.runs, attempt.run_id
    before = attempt.site.ledger.attempts.failures([run_id]).get(run_id, Failures())
    found = conclude(AttemptEnd(exit_, attempt.job.retries, before, attempt.override, had))
    if isinstance(found, Ended):
        return runs.finish(attempt.fence, found.exit_, measured or Measurement())
    more = found.override or None
    return runs.requeue(attempt.fence, found.exit_, measured, demand_override=more)


def _exit(attempt: NodeAttempt, followed: Followed, other: str | None) -> tuple[Exit, int | None]:
    """How the attempt ended, and what it needs more than if it ran out of GPU memory.

    It was to give way to the run *other*, where that is not None.
    """
    own, site = followed.own_exit(), attempt.site
    if not followed.timed_out and ended_by_restart(followed.status, booted_at(site.clock)):
        before = site.ledger.attempts.failures([attempt.run_id]).get(attempt.run_id, Failures())
        own = restarted(own, before, alone=attempt.job.nodes == 1)
    if other == attempt.run_id:  # also with exit status 0: it was told to stop, not done
        return grown(own), 0
    if other is not None and own.kind is not ExitKind.OK:
        return preempted(own, other), 0
    own = _told(attempt, own)
    exit_ = followed.cancellation or own
    if followed.cancellation is None or exit_.kind is ExitKind.FAILED:
        exit_ = end_of_gang(attempt.site, attempt.meeting, exit_, attempt.job.launch)
    # Ranks fail when rank 0, told to stop for another run, leaves them with exit 0.
    if other is not None and exit_ is not own and exit_.kind is not ExitKind.OK:
        return preempted(exit_, other), 0
    # Of another rank of its gang nothing is known here.
    if exit_.kind is not ExitKind.GPU_OUT_OF_MEMORY or exit_ is not own or not attempt.lease:
        return exit_, 0
    short = shortage_of(attempt.site, attempt.lease, followed)
    return with_shortage(exit_, short), short.above_bytes


def _told(attempt: NodeAttempt, exit_: Exit) -> Exit:
    """*exit_*, unless the site's policy or a lost GPU ended the attempt."""
    if attempt.lease is None or not attempt.lease.gpus:
        return exit_
    site = attempt.site
    warnings = site.ledger.warnings.of_run(attempt.run_id, attempt.number)
    gpus = [grant.uuid for grant in attempt.lease.gpus]
    return exit_told(exit_, warnings, lost_here(site), gpus)


def _measured(
    attempt: NodeAttempt, followed: Followed, demand: Demand, forecaster: Forecaster
) -> Measurement:
    site, gpus = attempt.site, followed.gpu_use
    usage, nodes = site.runtime.usage(attempt.container), attempt.job.nodes
    # What a gang costs is said once, on the run that leads.
    price = None if attempt.is_rank else forecaster.cost
    return Measurement(
        runtime_s=followed.runtime_s,
        host_peak_bytes=usage.host_peak_bytes,
        host_cache_bytes=usage.host_cache_bytes,
        gpu_peak_bytes=gpus.peak_bytes if gpus else None,
        gpu_utilisation_frac=gpus.utilisation_frac if gpus else None,
        cpu_s=usage.cpu_s,
        disk_peak_bytes=followed.disk_peak_bytes,
        cost=price(demand, followed.runtime_s, nodes=nodes) if price else None,
    )


def lesson_of(
    attempt: NodeAttempt,
    exit_: Exit,
    measured: Measurement,
    demand: Demand,
    gpu_above_bytes: int | None,
) -> Measurement | None:
    """What of the attempt is worth learning; None of one that teaches nothing."""
    reports = 0
    if exit_.kind in CUT_SHORT:
        points = attempt.site.ledger.progress.series(attempt.run_id, attempt.number)
        reports = len(points)
    return lesson(exit_, measured, demand, gpu_above_bytes, reports=reports)
