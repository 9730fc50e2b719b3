"""What a site would have said, in a replay, of when jobs that wait will start."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from headway.estimate.lifetimes import Life, Lifetimes
from headway.estimate.starts import LOOKED_AT, StartCalibration, learn
from headway.estimate.usual import Lasted, Usual
from headway.model.run import Span
from headway.model.start_forecast import StartForecast
from headway.policy.fit import Ask
from headway.policy.preempt import Runner
from headway.replay.cluster import Cluster, Job
from headway.replay.forward import Draw, Present, play_forward, span_of
from headway.replay.history import kind_of_row
from headway.replay.ours import Headway
from headway.replay.trace_jobs import Estimates
from headway.units import DAY_S

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_ENDED = 3000
"""So many of the newest ended jobs are learnt from."""


class SaidStarts:
    """Says of some of the jobs that join a queue when they will start, as a site does."""

    def __init__(self, share: float, estimates: Estimates = Estimates.LEARNED) -> None:
        """Say it of this *share* of them, drawn at random: each costs as much as a small replay.

        Run times are drawn from what had ended by then; where the *estimates* of each job are
        given, or perfect, from those.
        """
        self._share, self._chance = share, Random(0)  # noqa: S311 - no secret
        self._estimates = estimates
        self._ended: deque[Life] = deque(maxlen=_ENDED)
        self._said: list[tuple[StartForecast, Job]] = []
        self._night_s = 0.0
        self._usual, self._learnt_from = Usual(()), 0
        self.learnt = StartCalibration()

    def ended(self, job: Job, now_s: float) -> None:
        """*job* has ended."""
        self._ended.append(self._life(job, now_s - job.start_s, over=True))

    def joined(
        self, new: Sequence[Job], jobs: Sequence[Job], line: Headway[Ask], cluster: Cluster
    ) -> None:
        """Say when those of *new* start that did not start at once.

        Called after each decision, of which *cluster* has the time.
        """
        now_s, wanted = cluster.now_s, self.chosen(new, line)
        if not wanted:
            return
        if now_s - self._night_s > DAY_S:
            self._night_s = now_s
            self.learnt = learn(self._known(now_s), _moment(now_s))
        present = self.present(jobs, line, cluster)
        waits = play_forward(present, frozenset(job.ask.run_id for job in wanted))
        places = {run: at for at, run in enumerate(line.queue.in_order())}
        for job in wanted:
            run_id = job.ask.run_id
            said = self.learnt.forecast(
                run_id,
                _moment(now_s),
                span_of(waits[run_id]),
                gpus=job.trace.gpus,
                ahead=places[run_id],
                first=True,
            )
            self._said.append((said, job))

    def chosen(self, new: Sequence[Job], line: Headway[Ask]) -> list[Job]:
        """Those of *new* that wait and of which something is to be said."""
        waiting = [job for job in new if job.ask.run_id in line.queue.waiting]
        return [job for job in waiting if self._chance.random() < self._share]

    def present(self, jobs: Sequence[Job], line: Headway[Ask], cluster: Cluster) -> Present:
        """The cluster as it is now, with what is known of how long jobs go on."""
        now_s = cluster.now_s
        running = {job.ask.run_id: job for there in cluster.running.values() for job in there}
        lives = {
            run: self._life(job, max(now_s - job.start_s, 1.0)) for run, job in running.items()
        }
        lives |= {run: self._life(jobs[int(run)]) for run in line.queue.waiting}
        return Present(
            now_s,
            line,
            cluster.board,
            [Runner(job.ask, job.places, job.start_s) for job in running.values()],
            _drawn(Lifetimes([*self._ended, *lives.values()], self._usual_now()), lives),
        )

    def _life(self, job: Job, lasted_s: float = 0.0, *, over: bool = False) -> Life:
        row, kind = job.trace, kind_of_row(job.trace)
        if self._estimates not in {Estimates.GIVEN, Estimates.PERFECT}:
            return Life(kind, row.submit_s, lasted_s, over)
        median_s, high_s = job.ask.median_s, job.ask.high_s
        if self._estimates is Estimates.PERFECT:  # by the speed that it has now
            median_s = high_s = job.since_s - job.start_s + job.left_s / job.speed
        own = replace(kind, recipe=row.job_id)  # what is known of it says nothing of others
        span = Span(median_s**2 / high_s, median_s, high_s)
        return Life(own, row.submit_s, lasted_s, over, span)

    def _usual_now(self) -> Usual:
        """What ended jobs lasted; learnt anew when there are a tenth more."""
        if len(self._ended) > 1.1 * self._learnt_from:
            self._learnt_from = len(self._ended)
            self._usual = Usual(Lasted(one.kind, one.lasted_s) for one in self._ended)
        return self._usual

    def forecasts(self) -> list[StartForecast]:
        """What was said, with what came, once all have started."""
        return [replace(said, started_at=_moment(job.start_s)) for said, job in self._said]

    def _known(self, now_s: float) -> list[StartForecast]:
        """The newest, each with its start as far as that has come."""
        return [
            replace(said, started_at=_moment(job.start_s)) if job.places else said
            for said, job in self._said[-LOOKED_AT:]
            if job.start_s <= now_s
        ]


def _drawn(lifetimes: Lifetimes, lives: Mapping[str, Life]) -> Callable[[int], Draw]:
    def once(seed: int) -> Draw:
        left_s = lifetimes.round(seed)
        return lambda run_id: left_s(lives[run_id])

    return once


def _moment(time_s: float) -> datetime:
    return _EPOCH + timedelta(seconds=time_s)
