"""What single lines say becomes one count over the whole run.

Epochs from 0 or from 1, steps that begin again with each epoch, several ranks
that print the same line, a program that starts over: after this there are
only iterations and epochs done in all.
"""

import enum

from headway.model.progress import ProgressPoint
from headway.progress.believed import BelievedTotals
from headway.progress.seen import MAX_COUNT, Counted, Seen

BELOW_BEFORE_RESTART = 3
"""So many rising points below the highest one mean the program started over.

Fewer would take a rank that lags behind for a restart."""
_BEGIN = 0.05
"""Who counts on from a checkpoint has more than so much of the total at first."""
_OVER = 0.9
"""So much of a total is all of it: not every step is told."""
_ALIKE = 0.1
"""Folds of one data set differ in length by less."""


class Counts(enum.Enum):
    """What a log counts where it names no epoch."""

    STEPS = "steps"
    """Batches: many to an epoch; ``step 3/100`` may be one of an epoch or of the run."""
    STEPS_OF_EPOCH = "steps of an epoch"
    """Batches, and ``step 3/100`` surely is one of an epoch."""
    ROUNDS = "rounds"
    """Boosting rounds, trees, passes over the data: what a job calls its epochs."""


class RunCounter:
    """Turns `Seen` into `ProgressPoint` that never counts anything twice."""

    def __init__(
        self,
        epochs: int | None = None,
        counts: Counts = Counts.STEPS,
        *,
        iterations: int | None = None,
        episodes: int | None = None,
        is_resumed: bool = False,
    ) -> None:
        """Begin at nothing.

        Args:
            epochs: Epochs or rounds there will be, where the job says so; what
                the log itself says wins.
            counts: What an iteration without an epoch is in this log.
            iterations: Iterations there will be, where the job says so, the same.
            episodes: Of reinforcement learning, the same.
            is_resumed: An earlier attempt may have done part of what the job says.
        """
        self.epochs = epochs
        self._own = {None: iterations, Counted.EPISODES: episodes}
        self._counts = counts
        self.total: int | None = None
        self.restarts = 0
        self.units = 0
        """How often it began again with something of another length, which is another unit."""
        self._first_epoch = 1
        self._index = 0
        self._steps: int | None = None
        self._steps_of_highest: int | None = None
        self._in_epoch = _EpochSteps()
        self._has_epochs = False
        self._steps_are_of_all = False if counts is Counts.STEPS_OF_EPOCH else None
        self._steps_before_epochs: int | None = None
        self._last_step = (0, -1)
        self._iteration: int | None = None
        self._highest = (-1, -1.0)
        self._names: set[str] = set()
        self._below: list[tuple[int, float]] = []
        self._totals = BelievedTotals()
        self._is_resumed = is_resumed
        self._first_done: float | None = None
        self.may_be_less = False
        """Whether the total is the job's and may be more than there will be: of episodes, or where
        what was done before is none of the count."""
        self._is_over = False
        """Whether the count has come to the total that was told."""

    def add(self, seen: Seen, t_s: float) -> ProgressPoint | None:
        """The point *seen* makes, or None when it tells nothing new."""
        if seen.epoch is not None:
            self._enter_epoch(seen.epoch)
        if seen.epochs is not None:
            self._learn_epochs(seen.epochs)
        iteration, epoch = self._position(seen)
        if seen.epoch_done is not None:
            epoch = seen.epoch_done
        if iteration is None:
            iteration = self._iteration  # the line tells of epochs only
            if iteration is None and (epoch is None or (epoch == 0 and not seen.metrics)):
                return None  # at most the first epoch begins: nothing is done yet
        if iteration is not None and iteration > MAX_COUNT:
            return None
        place = (iteration or 0, self._highest[1] if epoch is None else epoch)
        if not self._is_news(place, seen.metrics, t_s):
            return None
        self._iteration = iteration
        done = iteration if iteration is not None else epoch or 0.0
        total = self._believed_total(seen, iteration, done, t_s)
        return ProgressPoint(t_s, iteration, epoch, total, seen.metrics)

    def _believed_total(
        self, seen: Seen, iteration: int | None, done: float, t_s: float
    ) -> int | None:
        """How many there will be, as far as that is to be believed."""
        total = self._total(seen, iteration)
        own = self._own.get(seen.counted)
        if total is None and iteration is not None and iteration <= (own or 0):
            total = own
        self._is_over = total is not None and done >= _OVER * total
        total = self._totals.believed(total, done, t_s)
        if self._first_done is None:
            self._first_done = done
        from_begin = self._first_done <= max(_BEGIN * (total or 0), 1.0)
        at_most = seen.counted is Counted.EPISODES or (self._is_resumed and from_begin)
        self.may_be_less = at_most and not self._totals.are_told
        return total if total is not None and total <= MAX_COUNT else None

    def _enter_epoch(self, number: int) -> None:
        if not self._has_epochs and self._steps:
            if self._last_step[1] < 0.9 * self._steps:
                self._steps_before_epochs = self._steps
            else:
                self._steps_are_of_all = False  # they were over before the second epoch began
        if number == 0:
            self._first_epoch = 0
        self._index = number - self._first_epoch
        self._has_epochs = True

    def _learn_epochs(self, printed: int) -> None:
        """``Epoch 0/24`` names the last index, ``Epoch 0/25`` the count: 25 epochs both."""
        self._totals.tell("epochs", printed)
        names_last = self._first_epoch == 0 and (printed % 5 == 4 or printed <= self._index)
        self.epochs = max(printed + names_last, 1)

    def _position(self, seen: Seen) -> tuple[int | None, float | None]:
        """Iterations and epochs done in all, of a line without a step of so many."""
        if seen.iteration is not None:
            return seen.iteration, self._epochs_done(seen)
        if seen.step is not None:
            if seen.steps:
                return self._of_epoch(seen.step, seen.steps, is_named=seen.epoch is not None)
            iteration, done = self._in_epoch.add(self._index, seen.step)
            return iteration, done if self._has_epochs else None
        done = self._epochs_done(seen)
        if done is None or not self._steps:
            return None, done
        if self._steps_are_of_all is False and seen.metrics:
            done += self._last_step == (self._index, self._steps)
        # The epoch's own steps tell how far it is, not a line about it.
        return self._iteration, max(self._highest[1], done)

    def _of_epoch(
        self, step: int, steps: int, *, is_named: bool
    ) -> tuple[int | None, float | None]:
        """Step *step* of *steps*, where *steps* is an epoch's length, or that of the run."""
        last_index, last = self._last_step
        begins_again = steps == self._steps and step <= 0.5 * steps and last >= 0.9 * steps
        if begins_again and not is_named and last_index == self._index:
            self._index += 1  # without saying so
        if self._has_epochs and self._steps_are_of_all is None:
            self._learn_steps(step, steps, is_named=is_named)
        self._last_step = (self._index, step)
        self._steps = steps
        if self._steps_are_of_all:
            return step, float(self._index)
        if self._is_undecided:
            return None if self._index else step, float(self._index)
        if self._has_epochs or self._index:
            step = min(step, steps)
        done = self._index + step / steps
        return self._index * steps + step, done if self._has_epochs or self._index else None

    def _learn_steps(self, step: int, steps: int, *, is_named: bool) -> None:
        """Find out whether *steps* are those of an epoch or of the whole run.

        Between two epochs the count begins again or goes on. Before, step 176 of 800 in
        epoch 11 of 50 may be either, step 300 of 800 only one of the epoch's.
        """
        last_index, last = self._last_step
        if not is_named and self._steps_before_epochs == steps and last <= step:
            self._steps_are_of_all = True  # the count began before the first epoch did
        elif last_index < self._index and last > 0 and self._steps == steps:
            self._steps_are_of_all = last < step and last < 0.9 * steps
        elif self.epochs and self.epochs > 1:
            part, near = step / steps * self.epochs, 0.5 * self.epochs / steps
            if not self._index - near <= part <= self._index + 1 + near:
                self._steps_are_of_all = False

    @property
    def _is_undecided(self) -> bool:
        """Whether the steps may be those of an epoch or of the whole run."""
        return self._has_epochs and self._steps_are_of_all is None and (self.epochs or 1) > 1

    def _epochs_done(self, seen: Seen) -> float | None:
        if seen.epoch is None:
            return None
        # A line with numbers is printed when an epoch ends, a bare one when it begins;
        # where steps are counted, these tell.
        counted = self._steps or self._in_epoch.index is not None
        says_so = bool(seen.metrics) or bool(seen.has_ended)
        ended = says_so and seen.iteration is None and not counted
        return float(self._index + ended)

    def _total(self, seen: Seen, iteration: int | None) -> int | None:
        steps = self._steps or self._in_epoch.steps
        if iteration is None:
            return self.epochs
        if seen.total is not None:
            self._totals.tell("iterations", seen.total)
            self.total = seen.total
        elif seen.iteration is not None:
            return self.total or self._total_from_epochs(seen, iteration)
        elif steps and self._steps and self._is_undecided:
            self.total = steps if steps == self._steps_before_epochs else None
        elif steps and (self._steps_are_of_all or not (self._has_epochs or self._index)):
            self._totals.tell("steps", steps)
            self.total = steps
        elif steps:
            self.total = steps * self.epochs if self.epochs else None
        return self.total

    def _total_from_epochs(self, seen: Seen, iteration: int) -> int | None:
        """Iterations in all from the epochs there will be; None when it cannot be told."""
        total = None
        if self.epochs and self._counts is Counts.ROUNDS:
            total = self.epochs
        elif self.epochs and seen.epoch_done:
            total = round(iteration * (self.epochs / seen.epoch_done))
        return total if total is not None and iteration <= total else None

    def _is_news(self, place: tuple[int, float], metrics: dict[str, float], t_s: float) -> bool:
        """Whether *place* is further than ever, has new metrics, or shows a restart."""
        if place == self._highest:
            self._below = []
            new = metrics.keys() - self._names
            self._names |= new
            return bool(new)
        if place < self._highest:
            if not self._below or place > self._below[-1]:
                self._below.append(place)
            elif place < self._below[-1]:
                self._below = [place]
            # A rank that lags, or a checkpoint, is not so far behind.
            is_new = max(place) <= 0.5 * max(self._highest)
            if len(self._below) < BELOW_BEFORE_RESTART and not (is_new and self._is_over):
                return False
            self.restarts += 1
            self.units += _differ(self._steps, self._steps_of_highest)
            if is_new:
                self._totals.begin_again(t_s)
        self._highest, self._names, self._below = place, set(metrics), []
        self._steps_of_highest = self._steps
        return True


def _differ(steps: int | None, before: int | None) -> bool:
    """Whether lengths are those of two things, not of two parts of one that is not quite even."""
    if not steps or not before:
        return False
    return abs(steps / before - 1.0) > _ALIKE


class _EpochSteps:
    """Steps that are printed without saying how many an epoch has.

    Where they begin again with a new epoch, the epoch before tells its length;
    where they just go on, they are counts in all already. Until then the steps
    of a log that begins in a later epoch, as one that is resumed, tell no iteration.
    """

    def __init__(self) -> None:
        self.steps: int | None = None
        self.index: int | None = None
        """The epoch of the last step; None before the first."""
        self._offset: int | None = 0
        self._first = 0
        self._last = -1
        self._interval = 0

    def add(self, index: int, step: int) -> tuple[int | None, float | None]:
        """Iterations and epochs done in all at *step* of epoch *index*."""
        if self.index is None:
            self.index, self._first = index, step
            self._offset = None if index else 0
        elif index > self.index:
            if step <= self._last:
                self.steps = self._last - self._first + max(self._interval, 1)
                before = self.steps * self.index if self._offset is None else self._offset
                self._offset = before + self.steps * (index - self.index)
                self._first = step
            else:
                self._offset = self._offset or 0
            self.index = index
        elif index == self.index and step > self._last:
            gap = step - self._last
            self._interval = min(self._interval or gap, gap)
        elif index < self.index:  # a rank that lags, or a restart
            behind = (self.steps or 0) * (self.index - index)
            return max((self._offset or 0) - behind, 0) + step, float(index)
        self._last = step
        done = index + min((step - self._first) / self.steps, 1.0) if self.steps else float(index)
        return None if self._offset is None else self._offset + step, done
