"""Watches whether somebody uses a session: who is connected, and what its GPUs do."""

from headway.model.lease import Lease
from headway.policy.idle import EndIdle, gpu_was_used, judge_idle
from headway.run.here import NodeAttempt, connected_note


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
