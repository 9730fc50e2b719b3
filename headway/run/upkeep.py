"""What the site does for one attempt while its container runs (port `follow.Upkeep`)."""

import logging
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from headway.clock import NowAndThen
from headway.ledger.progress_snapshots import NOT_KEPT_YET
from headway.ledger.records import NodeRecord
from headway.model.attempt_record import ProgressSnapshot
from headway.model.lease import Basis, Fence, Lease, Sharing
from headway.model.progress import ProgressPoint
from headway.model.run import SICK_GPU, Exit, ExitKind
from headway.model.run_warning import Silent, SilentFailure
from headway.policy.disk import DiskUse, why_too_much
from headway.policy.idle import EndIdle, gpu_was_used, judge_idle
from headway.policy.over_grant import LASTS_S, over_grants
from headway.policy.silent_failures import silent_failures, to_end_for
from headway.run.follow import Findings, Watched
from headway.run.gang_folder import GangPost
from headway.run.guard_notes import read_notes
from headway.run.here import NodeAttempt, connected_note
from headway.run.rendezvous import why_end
from headway.runtime.diskuse import DiskMeter, entries
from headway.runtime.port import ContainerStatus, Usage
from headway.runtime.redact import FileRedactor
from headway.site import Site
from headway.this_node import told_sick
from headway.units import GIB, format_size

log = logging.getLogger(__name__)

CHECKS = 5
"""So many checks within the time after which a GPU counts as not used."""


@dataclass(slots=True)
class OverGrants:
    """What two looks find of memory above the grant: neither ends the other's warning."""

    by_check: tuple[SilentFailure, ...] = ()
    by_watch: tuple[SilentFailure, ...] = ()

    def now(self) -> list[SilentFailure]:
        """One of each GPU; what others lack comes before what is merely above."""
        return list({each.gpu: each for each in (*self.by_check, *self.by_watch)}.values())


class SilentCheck:
    """Watches what one lease's run does with its GPUs."""

    def __init__(self, site: Site, lease: Lease, over: OverGrants) -> None:
        """Watch the run of *lease* on *site*'s node; *over* is shared with its `GrantWatch`."""
        self._site = site
        self._lease = lease
        self._over = over
        self._cpu: deque[tuple[float, float]] = deque()

    def check(self, elapsed_s: float, usage: Usage) -> Findings:
        """Read, decide and keep: what goes wrong now, and whether the run is to end for it.

        Args:
            elapsed_s: Since the container's start.
            usage: Of the container now.

        Raises:
            LedgerUnreachable: Nothing is known now; the run goes on.
        """
        if not self._lease.gpus:
            return Findings()
        ledger, lease = self._site.ledger, self._lease
        settings = self._site.policy_settings
        window_s = 2 * settings.silent_after_s
        points = {
            grant.uuid: ledger.telemetry.series(
                lease.node, gpu=grant.uuid, last_s=min(elapsed_s, window_s)
            )
            for grant in lease.gpus
        }
        found = silent_failures(
            lease,
            points,
            cpu_used=self._cpu_used(elapsed_s, usage, window_s),
            elapsed_s=elapsed_s,
            after_s=settings.silent_after_s,
        )
        self._over.by_check = tuple(each for each in found if each.kind is Silent.OVER_GRANT)
        others = [each for each in found if each.kind is not Silent.OVER_GRANT]
        going_on, begun = ledger.warnings.keep(lease.fence, [*self._over.now(), *others])
        cause = None
        if going_on:
            demand = ledger.runs.get(lease.run_id).demand
            is_guess = demand is not None and demand.gpu_memory_basis is Basis.PRIOR
            cause = to_end_for(going_on, now=ledger.now(), settings=settings, is_guess=is_guess)
        if cause is not None:
            ledger.warnings.mark_stopped(lease.fence, cause)
        return Findings(tuple(going_on), tuple(begun), end=cause is not None)

    def _cpu_used(self, elapsed_s: float, usage: Usage, window_s: float) -> float | None:
        """Processors in use on average over the window; None before a quarter of it was seen."""
        if usage.cpu_s is None:
            return None
        self._cpu.append((elapsed_s, usage.cpu_s))
        while self._cpu[0][0] < elapsed_s - window_s:
            self._cpu.popleft()
        begun_s, before_s = self._cpu[0]
        if elapsed_s - begun_s < window_s / 4:
            return None
        return (usage.cpu_s - before_s) / (elapsed_s - begun_s)


class GrantWatch:
    """Watches whether one lease's run leaves others what they were granted of shared GPUs."""

    def __init__(self, site: Site, lease: Lease, found: OverGrants) -> None:
        """Watch the run of *lease* on *site*'s node; *found* is shared with its `SilentCheck`."""
        self._site = site
        self._lease = lease
        self._found = found
        self.shared = {each.uuid for each in lease.gpus if each.sharing is Sharing.SHARED}
        """The GPUs that others may be on."""
        self._since: tuple[float, datetime] | None = None
        """When it was found over its grant, and by which reading."""

    def verdict(self, record: NodeRecord) -> str:
        """Why it is to end now by *record*, having been warned; empty while it may go on."""
        over, warnings = self._over(record), self._site.ledger.warnings
        if record.reading is None or over is None:
            if self._since is not None:
                self._found.by_watch = ()
                warnings.keep(self._lease.fence, self._found.now(), kinds=(Silent.OVER_GRANT,))
            self._since = None
            return ""
        now_s = self._site.clock.monotonic_s()
        since_s, by = self._since = self._since or (now_s, record.reading.at)
        lasted_s = (record.reading.at - by).total_seconds()
        if now_s - since_s >= LASTS_S and lasted_s >= LASTS_S / 2.0:
            return f"it {over.text}"
        told = replace(over, text=f"{over.text}; it is ended if that goes on for {LASTS_S:g} s")
        self._found.by_watch = (told,)
        # Each time: the look at all that goes wrong goes by older readings.
        _, begun = warnings.keep(self._lease.fence, self._found.now(), kinds=(Silent.OVER_GRANT,))
        for each in begun:
            log.warning("it %s", each.failure.text)
        return ""

    def _over(self, record: NodeRecord) -> SilentFailure | None:
        leases = self._site.ledger.leases.live(self._lease.node)
        gpus = {gpu.uuid: gpu for gpu in record.node.capacity.gpus}
        for seen in (record.reading.gpus or ()) if record.reading is not None else ():
            if seen.uuid in self.shared and seen.uuid in gpus:
                granted: Counter[str] = Counter()
                for lease in leases:
                    for grant in lease.gpus:
                        if grant.uuid == seen.uuid:
                            granted[lease.run_id] += grant.memory_bytes
                found = over_grants(gpus[seen.uuid], seen, granted)
                if self._lease.run_id in found:
                    return found[self._lease.run_id]
        return None


class IdleWatch:
    """Watches one attempt of a session."""

    def __init__(self, attempt: NodeAttempt, lease: Lease) -> None:
        """Of *attempt*, which may use *lease*; before anybody connects its time counts from now."""
        self._attempt = attempt
        self._lease = lease
        self._note = connected_note(attempt.site.settings, attempt.run_id)
        self._seen = self._touched_ns()
        self._last_s = attempt.site.clock.monotonic_s()

    def verdict(self) -> EndIdle | None:
        """Whether it is to end now. Asked more often than its idle time lasts."""
        site, session = self._attempt.site, self._attempt.job.session
        if session is None:
            return None
        now_s, touched = site.clock.monotonic_s(), self._touched_ns()
        if touched != self._seen:  # the wall clock may jump: only that it changed counts
            self._seen, self._last_s = touched, now_s
        idle_s = session.idle or site.policy_settings.session_idle_s
        alone_s = now_s - self._last_s
        if judge_idle(alone_s, idle_s, gpu_used=False) is None:
            return None
        return judge_idle(alone_s, idle_s, gpu_used=self._gpu_was_used(idle_s))

    def _gpu_was_used(self, last_s: float) -> bool:
        telemetry, node = self._attempt.site.ledger.telemetry, self._lease.node
        points = {
            grant.uuid: telemetry.series(node, gpu=grant.uuid, last_s=last_s)
            for grant in self._lease.gpus
        }
        return gpu_was_used(points, self._attempt.run_id)

    def _touched_ns(self) -> int:
        try:
            return self._note.stat().st_mtime_ns
        except FileNotFoundError:
            return 0


ENVIRONMENT_BYTES = 32 * GIB
"""What one environment takes at most; it is its team's, and counts against no run's disk."""
_MOST_FILES = 500_000
_SETTINGS_EVERY_S = 5.0
_HEALTH_EVERY_S = 5.0
_DISK_GRACE_S = 1.0
_FAR_BEYOND = 1.05
"""Times what it asks for: beyond that nothing is given any grace."""


class AttemptUpkeep:
    """Upkeep of an attempt.

    Args:
        attempt: The attempt.
        lease: What it may use.
        secrets: Values that nobody may see in its log.
    """

    def __init__(self, attempt: NodeAttempt, lease: Lease, secrets: Iterable[bytes]) -> None:
        self._attempt = attempt
        self._site = attempt.site
        self._lease = lease
        over = OverGrants()
        self.check = SilentCheck(attempt.site, lease, over).check
        self.redact = FileRedactor(attempt.log, secrets).redact
        self._idle = IdleWatch(attempt, lease)
        self._grants = GrantWatch(attempt.site, lease, over)
        meeting, starts_others = attempt.meeting, attempt.job.launch.starts_others
        self._post = None
        if meeting is not None and starts_others:
            self._post = GangPost(attempt, meeting.gang_id, meeting.rank)
        self._container_folders: tuple[Path, ...] = ()
        self._settings_due = NowAndThen(attempt.site.clock, _SETTINGS_EVERY_S)
        self._health_due = NowAndThen(attempt.site.clock, _HEALTH_EVERY_S)
        self._reserve_bytes: int | None = None
        own = ", working directory" if attempt.job.code else ""
        self._disk = DiskMeter(
            attempt.site.clock,
            {
                f"outputs, checkpoint{own} and log": lambda: (attempt.folder, attempt.working_copy),
                "its owner's folder": lambda: tuple(attempt.user_folders.values()),
                "elsewhere in its container": self._own_folders,
            },
            partial(self._site.runtime.frozen, attempt.container),
        )

    def keep_points(self, before: int, points: Sequence[ProgressPoint]) -> None:
        """Keep progress points in the ledger."""
        self._site.ledger.progress.append(self._lease.fence, points, first=before)

    def keep_snapshot(self, now: Watched) -> None:
        """Keep in the ledger how far the run is."""
        keep_snapshot(self._site, self._lease.fence, now)

    def pass_on(self) -> None:
        """Pass on what parts of its gang ask each other to run."""
        if self._post is not None:
            self._post.pass_on()

    def cancellation(self, status: ContainerStatus) -> Exit | None:
        """Why it has to stop: for its disk, unused, for its GPUs, or with its gang."""
        uses = self._disk.measure(status.pids)
        too_much = self._why_too_much(uses) or self._disk.why_uncounted
        if too_much:
            # It goes on writing in its grace time: it gets little of it.
            used, asked = sum(use.used_bytes for use in uses), self._asked_bytes
            far = asked is not None and used > _FAR_BEYOND * asked
            grace_s = 0.0 if far else min(self._attempt.job.stop_grace, _DISK_GRACE_S)
            self._site.runtime.stop(self._attempt.container, grace_s)
            return Exit(ExitKind.FAILED, None, too_much)
        if (idle := self._idle.verdict()) is not None:
            return Exit(ExitKind.OK, None, idle.why)
        if self._lease.gpus and self._health_due.is_due():
            nodes, node = self._site.ledger.nodes, self._lease.node
            # The whole row only where it is needed: sixteen runs may share the GPUs of a node.
            record = nodes.get(node) if self._grants.shared else None
            drains = nodes.gpu_drains(node) if record is None else record.node.gpu_drains
            if sick := told_sick(self._lease, drains, ending=True):
                return Exit(ExitKind.INFRASTRUCTURE, None, f"{SICK_GPU} ({sick})")
            if record is not None and (over := self._grants.verdict(record)):
                return Exit(ExitKind.GPU_OUT_OF_MEMORY, None, f"ended as over its grant: {over}")
        meeting = self._attempt.meeting
        return why_end(self._site, meeting) if meeting is not None else None

    def last_cancellation(self, status: ContainerStatus) -> Exit | None:
        """Why a container that has ended had to, whatever ended it; None where it had not.

        What it wrote last is measured too, and what it was stopped for by the node's guard, or
        by a flow that has died since.
        """
        notes = read_notes(self._site.settings.state_dir)
        guarded = notes.stopped.get(self._attempt.container)
        if guarded is not None:
            return Exit(
                ExitKind.INFRASTRUCTURE, status.exit_code, f"stopped by the guard: {guarded}"
            )
        too_much = self._why_too_much(self._disk.measure_all())
        if not too_much or not self._asked_bytes:
            return None
        self._disk.give_back_unwritten()
        return Exit(ExitKind.FAILED, status.exit_code, too_much)

    @property
    def disk_peak_bytes(self) -> int:
        """Most that it was seen to have written at once."""
        return self._disk.peak_bytes

    @property
    def _asked_bytes(self) -> int | None:
        return self._attempt.job.resources.disk or None

    def _why_too_much(self, uses: Sequence[DiskUse]) -> str:
        if self._settings_due.is_due():  # the disk is measured twice a second
            reserve = self._site.node_settings.reserve_disk
            self._reserve_bytes = None if isinstance(reserve, str) else reserve
        return why_too_much(uses, self._asked_bytes, self._reserve_bytes)

    def _own_folders(self) -> tuple[Path, ...]:
        if not self._container_folders:  # they stay the same while there is a container
            self._container_folders = self._site.runtime.own_folders(self._attempt.container)
        return self._container_folders


def keep_snapshot(site: Site, fence: Fence, now: Watched) -> None:
    """Keep in the ledger how far *fence*'s attempt is."""
    left, point = now.remaining, now.point or ProgressPoint(now.elapsed_s)
    site.ledger.progress_snapshots.keep(
        fence,
        ProgressSnapshot(
            fence.run_id,
            fence.attempt,
            NOT_KEPT_YET,
            now.elapsed_s,
            done_frac=now.done_frac,
            remaining_s=left.remaining_s if left else None,
            low_s=left.low_s if left else None,
            high_s=left.high_s if left else None,
            phase=now.phase,
            iteration=point.iteration,
            epoch=point.epoch,
            total=point.total,
            per_s=now.per_s,
        ),
    )


class MakerUpkeep(AttemptUpkeep):
    """The same while its container makes its environment, in *made*."""

    def __init__(self, attempt: NodeAttempt, lease: Lease, made: Path) -> None:
        super().__init__(attempt, lease, ())
        self._made = made

    def cancellation(self, status: ContainerStatus) -> Exit | None:
        """As for a program; also for what is made there without end."""
        sizes = list(entries((self._made,)))
        if sum(sizes) <= ENVIRONMENT_BYTES and len(sizes) <= _MOST_FILES:
            return super().cancellation(status)
        too_much = (
            f"no environment from {self._attempt.job.requirements}: it takes more than "
            f"{format_size(ENVIRONMENT_BYTES)} or {_MOST_FILES:,} files; name fewer packages"
        )
        return Exit(ExitKind.FAILED, None, too_much)
