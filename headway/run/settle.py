"""Settles an attempt that has ended: how, what it used, what it teaches, and what follows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.forecast import Forecaster
from headway.ledger.records import RunRecord
from headway.model.lease import Demand, Lease
from headway.model.run import Exit, ExitKind, Measurement
from headway.policy.conclude import AttemptEnd, Ended, Had, conclude, preempted
from headway.policy.silent import exit_told
from headway.run.follow import Followed
from headway.run.here import NodeAttempt
from headway.run.memory_shortage import shortage_of, with_shortage
from headway.run.rendezvous import Meeting, end_of_gang
from headway.run.traces import lesson, trace_of


@dataclass(frozen=True, slots=True)
class Settlement:
    """Of one attempt."""

    here: NodeAttempt
    lease: Lease | None
    meeting: Meeting | None
    """Where its gang meets; None for a job on one node."""
    override: Mapping[str, Any]
    """What its run was given more of after attempts before."""
    dataset_bytes: int | None
    """Real size of its data; None without any."""

    @property
    def _is_rank(self) -> bool:
        return self.meeting is not None and self.meeting.rank > 0

    @property
    def _record(self) -> RunRecord:
        return self.here.site.ledger.runs.get(self.here.run_id)

    def settle(self, followed: Followed, demand: Demand) -> tuple[Exit, Measurement]:
        """Classify the end, learn from it, and put what follows into the ledger.

        Args:
            followed: What following its container found.
            demand: What it demanded.
        """
        exit_, above_bytes = self._exit(followed)
        measured = self._measured(followed, demand)
        # A profiler takes time and memory of its own: nothing is learned from such a run.
        if not self._is_rank and not self.here.job.profile:
            self._learn(exit_, measured, demand, above_bytes)
        record = self._record
        held = [grant.memory_bytes for grant in self.lease.gpus] if self.lease else []
        had = Had(
            demand,
            host_peak_bytes=measured.host_peak_bytes,
            gpu_bytes=max(held, default=0),
            gpu_above_bytes=above_bytes,
            spaces=Forecaster(self.here.site).spaces(record.pool, record.queue),
            nodes=self.here.job.resources.nodes,
        )
        return self.conclude(exit_, measured, had), measured

    def conclude(
        self, exit_: Exit, measured: Measurement | None = None, had: Had | None = None
    ) -> Exit:
        """Decide what follows an attempt that ended so, and put it into the ledger.

        Args:
            exit_: How it ended.
            measured: What it used; None where it ended before its container did.
            had: What it had; None in the same case.

        Returns:
            The exit, with what follows.
        """
        runs, run_id = self.here.site.ledger.runs, self.here.run_id
        end = AttemptEnd(
            exit_,
            self.here.number,
            self.here.job.retries,
            self._record.preemptions,
            self.override,
            had,
        )
        found = conclude(end)
        if isinstance(found, Ended):
            runs.finish(run_id, found.exit_, measured or Measurement())
        else:
            more = found.override or None
            runs.requeue(run_id, found.exit_, measured, demand_override=more)
        return found.exit_

    def _exit(self, followed: Followed) -> tuple[Exit, int | None]:
        """How the attempt ended, and what it needs more than if it ran out of GPU memory."""
        own = followed.own_exit()
        other = self._record.preempted_for
        if other is not None and own.kind is not ExitKind.OK:
            return preempted(own, other), 0
        own = self._told(own)
        exit_ = followed.cancellation or end_of_gang(self.here.site, self.meeting, own)
        # Ranks fail when rank 0, told to stop for another run, leaves them with exit 0.
        if other is not None and exit_ is not own and exit_.kind is not ExitKind.OK:
            return preempted(exit_, other), 0
        # Of another rank of its gang nothing is known here.
        if exit_.kind is not ExitKind.GPU_OUT_OF_MEMORY or exit_ is not own or not self.lease:
            return exit_, 0
        short = shortage_of(self.here.site, self.lease, followed)
        return with_shortage(exit_, short), short.above_bytes

    def _told(self, exit_: Exit) -> Exit:
        """*exit_*, unless the site's policy or a lost GPU ended the attempt."""
        if self.lease is None or not self.lease.gpus:
            return exit_
        site = self.here.site
        warnings = site.ledger.warnings.of_run(self.here.run_id, self.here.number)
        gpus = [grant.uuid for grant in self.lease.gpus]
        return exit_told(exit_, warnings, site.lost_gpus(), gpus)

    def _measured(self, followed: Followed, demand: Demand) -> Measurement:
        site, gpus = self.here.site, followed.gpu_use
        usage, nodes = site.runtime.usage(self.here.container), self.here.job.resources.nodes
        # What a gang costs is said once, on the run that leads.
        price = None if self._is_rank else Forecaster(site).cost
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

    def _learn(
        self, exit_: Exit, measured: Measurement, demand: Demand, gpu_above_bytes: int | None
    ) -> None:
        """Keep the trace of an attempt that teaches something.

        Nothing of a run on GPUs of several types, which is as slow as the slowest.
        """
        site = self.here.site
        gpu_type = Forecaster(site).gpu_type(self.lease) if self.lease is not None else ""
        learnt = lesson(exit_, measured, demand, gpu_above_bytes)
        if gpu_type and learnt is not None:
            size = self.dataset_bytes
            trace = trace_of(self.here, demand, learnt, dataset_bytes=size, gpu_type=gpu_type)
            site.ledger.traces.add([trace])
