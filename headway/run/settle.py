"""Settles an attempt that has ended: how, what it used, what it teaches, and what follows."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count

from headway.clock import booted_at
from headway.errors import HeadwayError, StagingError
from headway.estimate.options import numbers_of
from headway.estimate.programs import Presence, program_of, slow_downs
from headway.forecast import Forecaster
from headway.model.attempt_record import Failures
from headway.model.lease import Basis, Demand, Sharing
from headway.model.progress import ProgressPoint
from headway.model.run import ANOTHER_TEAMS, Exit, ExitKind, Measurement
from headway.model.trace import AFTER, EPOCHS_DONE, UTILISATION, Beside, Trace
from headway.policy.conclude import (
    AttemptEnd,
    Ended,
    Had,
    conclude,
    grown,
    on_sick_gpu,
    preempted,
    restarted,
)
from headway.policy.silent_failures import exit_told
from headway.run.admit import forecast
from headway.run.followed import Followed
from headway.run.here import NodeAttempt
from headway.run.memory_growth import shortage_of, with_growth, with_shortage
from headway.run.rendezvous import end_of_gang
from headway.runtime.errors import ImageMissing, PolicyViolation
from headway.runtime.outcome import ended_by_restart
from headway.staging.errors import CacheFull, SourceUnreachable, StagingTimedOut
from headway.this_node import sick_gpus
from headway.units import format_duration, format_size

CUT_SHORT = frozenset({ExitKind.TIMED_OUT, ExitKind.CANCELLED, ExitKind.PREEMPTED})
"""Ends of programs that would have gone on: they had done what they do all the time."""
_BATCHES = 2
"""A program that has reported so often has trained on a batch: its framework's allocator holds
what each further one takes."""


def lesson(
    exit_: Exit,
    measured: Measurement,
    demand: Demand,
    gpu_above_bytes: int | None,
    *,
    reports: int = 0,
) -> Measurement | None:
    """What of *measured* is worth learning: time and peaks, or the bound that was not enough.

    Of one that was cut short what it held of a GPU, where nobody had known how much that would be.
    None of an attempt that others kept from what it was granted, nor of one
    that ended for a reason of its own.

    Args:
        exit_: How the attempt ended.
        measured: What it used.
        demand: What it was granted.
        gpu_above_bytes: What it ran out of on a GPU; None where others kept it from that.
        reports: How often it reported progress; asked of one that was cut short.
    """
    if exit_.kind is ExitKind.OK:
        return measured
    if exit_.kind in CUT_SHORT and demand.gpu_memory_basis is Basis.PRIOR and reports >= _BATCHES:
        held_bytes = measured.gpu_peak_bytes
        return Measurement(gpu_peak_bytes=held_bytes) if held_bytes else None
    if exit_.kind is ExitKind.OUT_OF_MEMORY:
        host_bytes = max(measured.host_peak_bytes or 0, demand.host_memory_bytes)
        return replace(measured, runtime_s=None, host_peak_bytes=host_bytes, gpu_peak_bytes=None)
    if exit_.kind is ExitKind.GPU_OUT_OF_MEMORY and gpu_above_bytes:
        return replace(
            measured, runtime_s=None, host_peak_bytes=None, gpu_peak_bytes=gpu_above_bytes
        )
    return None


def trace_of(
    attempt: NodeAttempt,
    exit_: Exit,
    demand: Demand,
    learnt: Measurement,
    gpu_type: str,
    *,
    started_at: datetime | None,
    beside: Sequence[Beside] = (),
) -> Trace:
    """The trace of an attempt; what it *learnt* has a runtime only where it ended well."""
    job, ledger = attempt.job, attempt.site.ledger
    training = job.training
    latest = ledger.progress.latest(attempt.run_id)
    busy = learnt.gpu_utilisation_frac
    return Trace(
        network=training.network or job.recipe(),
        gpu_type=gpu_type,
        gpus=demand.gpus * job.nodes,
        nodes=job.nodes,
        batch_size=training.batch_size,
        runtime_s=learnt.runtime_s,
        precision=training.precision,
        framework=training.framework,
        data_threads=training.data_threads,
        dataset_bytes=attempt.dataset_bytes,
        dataset_samples=training.samples,
        epochs=float(training.epochs) if training.epochs else None,
        iterations=latest.iteration if latest else None,
        host_peak_bytes=learnt.host_peak_bytes,
        gpu_peak_bytes=learnt.gpu_peak_bytes,
        cpus=demand.cpus,
        exit=_exit_of(exit_),
        started_at=started_at,
        recipe=job.recipe(),
        team=attempt.job.team,
        owner=attempt.job.owner,
        run_id=f"{attempt.run_id}-{attempt.number}",
        beside=tuple(beside),
        metrics={
            **numbers_of(job.command, job.configuration),
            **({} if busy is None else {UTILISATION: busy}),
            **({EPOCHS_DONE: latest.epoch} if latest and latest.epoch else {}),
            **after_count(ledger.progress.series(attempt.run_id, attempt.number), learnt.runtime_s),
        },
    )


_NEIGHBOURS = 50
"""Of a run that shared its GPUs with more nothing is told: each report is compared with each."""


def slowed_by(attempt: NodeAttempt, started_at: datetime | None) -> list[tuple[str, Beside]]:
    """Which runs slowed an attempt down that shared its GPUs, as far as its progress tells."""
    lease, ledger = attempt.lease, attempt.site.ledger
    if lease is None or started_at is None or attempt.job.nodes > 1 or attempt.job.profile:
        return []
    if not any(grant.sharing is Sharing.SHARED for grant in lease.gpus):
        return []
    # Its times count from its program's start, which an environment that is made first puts off.
    there = [] if attempt.job.requirements else ledger.leases.neighbours(lease, _NEIGHBOURS + 1)
    if not 0 < len(there) <= _NEIGHBOURS:
        return []

    def since(moment: datetime | None) -> float:
        return math.inf if moment is None else (moment - started_at).total_seconds()

    others = [
        Presence(
            each.run_id,
            since(each.granted_at),
            # Of one that may have made its environment first it is not known.
            since(None if (each.job or {}).get("requirements") else each.started_at),
            since(each.ended_at),
            since(each.released_at),
        )
        for each in there
    ]
    programs = {
        each.run_id: program_of(each.job, each.team)
        for each in there
        if each.job is not None and each.team is not None
    }
    points = ledger.progress.series(attempt.run_id, attempt.number)
    return [
        (run_id, Beside(*programs[run_id], times))
        for run_id, times in slow_downs(points, others).items()
        if run_id in programs
    ]


def told_to(team: str, slowed: Iterable[tuple[str, Beside]]) -> dict[str, float]:
    """`Measurement.slowed` as members of *team* may read it."""
    others = count(1)
    return {
        run_id if each.team == team else f"{ANOTHER_TEAMS} ({next(others)})": each.times
        for run_id, each in slowed
    }


def after_count(points: Sequence[ProgressPoint], runtime_s: float | None) -> Mapping[str, float]:
    """How long a run of *runtime_s* went on when the first total of *points* was reached.

    Or, where none was ever told, when it counted last; where it tells of every tenth, and not of
    the last one, when that was due. Empty where a total was not reached.
    """

    def done(each: ProgressPoint) -> float:
        return (each.epoch if each.iteration is None else each.iteration) or 0.0

    reached = [each for each in points if each.total and done(each) >= each.total]
    if points and not any(each.total for each in points):
        reached = [max(points, key=done)]
    elif (
        not reached
        and len(points) > 1
        and points[-1].total
        and (points[-1].total == points[-2].total)
    ):
        before, last = points[-2:]
        left, stride = points[-1].total - done(last), done(last) - done(before)
        if 0 < left <= stride:
            reached = [last._replace(t_s=last.t_s + left / stride * (last.t_s - before.t_s))]
    return {AFTER: max(runtime_s - reached[0].t_s, 0.0)} if reached and runtime_s else {}


def _exit_of(exit_: Exit) -> str:
    if exit_.kind in CUT_SHORT:
        return "failed"
    return "ok" if exit_.kind is ExitKind.OK else "oom"


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
    slowed = slowed_by(attempt, record.started_at)
    measured = replace(measured, slowed=told_to(record.team, slowed))
    # A profiler takes time and memory of its own: nothing is learned from such a run.
    if not attempt.is_rank and not attempt.job.profile:
        gpu_type = forecaster.gpu_type(attempt.lease) if attempt.lease is not None else ""
        # Nothing of a run on GPUs of several types, which is as slow as the slowest: it has none.
        learnt = lesson_of(attempt, exit_, measured, demand, above_bytes)
        held_sick = attempt.lease is not None and sick_gpus(attempt.site, attempt.lease)
        if gpu_type and learnt is not None and not held_sick:
            trace = trace_of(
                attempt, exit_, demand, learnt, gpu_type,
                started_at=record.started_at, beside=[each for _, each in slowed],
            )  # fmt: skip
            attempt.site.ledger.traces.learn(attempt.fence, trace)
    if exit_.kind is ExitKind.OK:
        return conclude_attempt(attempt, exit_, measured), measured
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
        had: What it had; None in the same case, and where it ended well.

    Returns:
        The exit, with what follows; another one where the run was ended meanwhile.
    """
    runs, run_id = attempt.site.ledger.runs, attempt.run_id
    if exit_.kind is ExitKind.OK:
        return runs.finish(attempt.fence, exit_, measured or Measurement())
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
    sick = _sick(attempt, exit_, followed)
    if sick:
        before = site.ledger.attempts.failures([attempt.run_id]).get(attempt.run_id, Failures())
        return on_sick_gpu(exit_, sick, before, alone=attempt.job.nodes == 1), 0
    if followed.cancellation is None or exit_.kind is ExitKind.FAILED:
        exit_ = end_of_gang(attempt.site, attempt.meeting, exit_, attempt.job.launch)
    # Ranks fail when rank 0, told to stop for another run, leaves them with exit 0.
    if other is not None and exit_ is not own and exit_.kind is not ExitKind.OK:
        return preempted(exit_, other), 0
    # Of another rank of its gang nothing is known here.
    if exit_.kind is not ExitKind.GPU_OUT_OF_MEMORY or exit_ is not own or not attempt.lease:
        held = followed.gpu_use.peak_bytes if followed.gpu_use is not None else None
        return exit_, (held or 0) if exit_ is followed.cancellation else 0
    short = shortage_of(attempt.site, attempt.lease, followed)
    return with_shortage(exit_, short), short.above_bytes


_OF_A_SICK_GPU = frozenset({ExitKind.FAILED, ExitKind.GPU_OUT_OF_MEMORY, ExitKind.INFRASTRUCTURE})
"""How an attempt may end for it: by its program's own failure, or stopped by the site."""


def _sick(attempt: NodeAttempt, exit_: Exit, followed: Followed) -> str:
    """What is wrong with the GPUs of an attempt that may have ended for it; empty for nothing."""
    if attempt.lease is None or not attempt.lease.gpus or exit_.kind not in _OF_A_SICK_GPU:
        return ""
    if exit_ is followed.cancellation and exit_.kind is ExitKind.FAILED:
        return ""  # for what it did itself, such as filling the disk
    ended = followed.status.ended_at or attempt.site.clock.now()
    return sick_gpus(attempt.site, attempt.lease, since=ended)


def _told(attempt: NodeAttempt, exit_: Exit) -> Exit:
    """*exit_*, unless the site's policy ended the attempt."""
    if attempt.lease is None or not attempt.lease.gpus:
        return exit_
    return exit_told(exit_, attempt.site.ledger.warnings.of_run(attempt.run_id, attempt.number))


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


def summary_of(attempt: NodeAttempt) -> str:
    """One line about a run that ended well."""
    record, said = attempt.record, attempt.prediction
    measured = record.measurement or Measurement()
    parts = [record.exit.message] if record.exit is not None else []
    if measured.runtime_s is not None:
        predicted = f" (predicted {format_duration(said.told.median_s)})" if said.told else ""
        parts.append(f"{format_duration(measured.runtime_s)}{predicted}")
    if measured.host_peak_bytes is not None:
        parts.append(f"host peak {format_size(measured.host_peak_bytes)}")
    if measured.gpu_peak_bytes is not None:
        parts.append(f"GPU peak {format_size(measured.gpu_peak_bytes)}")
    return ", ".join([*parts, f"outputs in {attempt.folder / 'outputs'}"])


def exit_of(error: HeadwayError) -> Exit:
    """What an error means for the run: the user's to correct, or the site's to repeat."""
    if isinstance(error, StagingTimedOut):
        return Exit(ExitKind.TIMED_OUT, None, str(error))
    wrong = isinstance(error, ImageMissing | PolicyViolation | StagingError)
    of_others = isinstance(error, SourceUnreachable) or (
        isinstance(error, CacheFull) and error.passes
    )
    if wrong and not of_others:
        return Exit(ExitKind.REFUSED, None, str(error))
    return Exit(ExitKind.INFRASTRUCTURE, None, str(error))
