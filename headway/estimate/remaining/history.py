"""What a run has shown: bounded, the newest part in full detail."""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MAX_ENTRIES = 2048
"""When there are more, older ones are merged two by two: time and units stay exact."""
KEPT_ENTRIES = 64
"""The first so many are never merged: where the start-up ends must not change."""

LEAST_CLAIM = 0.05
"""Of the time since its begin a first unit that is said to have taken less took it elsewhere."""
AGREE = 2.0
"""What two units are said to have taken, and what they took, are at most so many times apart."""
BEGUN_S = 30.0
"""A first unit of less may be one that its program says as it begins: until then it has loaded
libraries and data."""
MOST_EPOCHS = 1000.0
"""A run of more units counts iterations, of which the second comes at once."""
LEAST_STEP = 1e-9
"""A smaller share of what is done is no progress but rounding, or forged."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """Times between updates, oldest first; three arrays of one length."""

    units: Array
    """Units done in the interval."""
    unit_s: Array
    """Seconds for each of them."""
    end: Array
    """Units done in all at its end."""
    begun: bool = False
    """One before these was left out, since its unit was told as it began."""

    def since(self, first: int) -> "Intervals":
        """Without the *first* entries."""
        return Intervals(self.units[first:], self.unit_s[first:], self.end[first:], self.begun)


@dataclass(slots=True)
class History:
    """Collects updates as intervals."""

    is_resumed: bool = False
    """What the first update tells may be of an earlier attempt: then it took no time here."""
    t_s: float = 0.0
    done: float = 0.0
    total: float | None = None
    began_s: float = 0.0
    """When the first unit that is kept began."""
    _units: list[float] = field(default_factory=list)
    _seconds: list[float] = field(default_factory=list)
    _end: list[float] = field(default_factory=list)
    _cached: Intervals | None = None
    _first_end: float | None = None
    """The first epoch to end while it was watched, counted in epochs."""
    _reports_since: int = 0
    """Reports at or after that end; the second one shows what came there."""
    _has_many_epochs: bool = True
    _is_timed: bool = False
    """Whether the newest unit is said to have taken a time: then it is done."""
    _claim: tuple[float, float] | None = None
    """What the first unit is said to have taken, and what there was time for; None once the next
    one has shown whether that is so."""

    @property
    def before_first_epoch_end(self) -> bool:
        """Whether the run has epochs, and what comes at their end has not been seen."""
        return self._first_end is not None and self._reports_since < 2 and self._has_many_epochs

    @property
    def may_have_begun(self) -> bool:
        """Whether nothing was seen but a first unit that may be told as it begins."""
        alone = self._end == [1.0] and self.began_s == 0.0 and not self._is_timed
        is_epoch = self._first_end is None and (self.total or 0.0) <= MOST_EPOCHS
        return alone and is_epoch and self._seconds[0] < BEGUN_S

    @property
    def doubt(self) -> float:
        """Log of how many times as long a unit may take as what the only one says of itself."""
        return math.log(self._claim[1] / self._claim[0]) if self._claim else 0.0

    def add(
        self,
        t_s: float,
        done: float,
        total: float | None,
        epoch: float | None = None,
        took_s: float | None = None,
    ) -> None:
        """Take in one update; what is no number, or goes back in time, is passed over.

        Args:
            t_s: Seconds since the attempt's start.
            done: Units done in all.
            total: Of how many.
            epoch: Epochs done in all, where units are finer.
            took_s: Seconds that the newest unit took by its program's own words.
        """
        if not (math.isfinite(t_s) and math.isfinite(done)) or t_s < self.t_s or done < 0:
            return
        self._new_total(total if total and 0.0 < total < math.inf else None)
        if epoch is not None and epoch >= 0 and done > self.done:
            self._in_epoch(epoch, done)
        if abs(done - self.done) <= LEAST_STEP * max(done, 1.0):
            if done == 0.0:
                self.t_s = t_s  # the first iteration begins now: what was before is no part of it
            return
        if done > self.done and t_s == self.t_s:
            # Read in one piece with the report before: all of them took that one's time.
            if self._units:
                self._units[-1] += done - self.done
                self._end[-1] = done
        elif done > self.done and not (self.is_resumed and self.done == 0.0 and done > 1.0):
            self._append(done - self.done, self._lasted_s(t_s, done, took_s), done)
        elif done < self.done and self._end:
            # Began again: the speed still holds, the places of the pauses do not.
            shift = self.done - done
            self._end = [end - shift for end in self._end]
        self.t_s, self.done = t_s, done
        self._cached = None

    def intervals(self) -> Intervals:
        """Everything kept, as arrays."""
        if self._cached is None:
            units = np.asarray(self._units, dtype=np.float64)
            seconds = np.asarray(self._seconds, dtype=np.float64)
            end = np.asarray(self._end, dtype=np.float64)
            self._cached = Intervals(units, seconds / units if len(units) else seconds, end)
        return self._cached

    def _lasted_s(self, t_s: float, done: float, took_s: float | None) -> float:
        """Seconds since the last update; of a first unit those that it is said to have taken.

        What its program did before, such as to import its libraries, is no part of it. Where the
        next one is said to have taken another time than it took, the first one's is given up; some
        say how long all of them took.
        """
        lasted_s = t_s - self.t_s
        self._is_timed = bool(took_s)
        claim, self._claim = self._claim, None
        if not self._units and done == 1.0 and took_s and self.t_s == 0.0:
            if LEAST_CLAIM * lasted_s < took_s < lasted_s:
                self._claim = took_s, lasted_s
                self.t_s = t_s - took_s
                return took_s
        elif claim is not None:
            said = (took_s, took_s - claim[0]) if took_s else ()
            if not any(lasted_s / AGREE < each < AGREE * lasted_s for each in said):
                self._seconds[0], self.began_s = claim[1], 0.0
        return lasted_s

    def _in_epoch(self, epoch: float, done: float) -> None:
        """Take in where in its epochs the run is."""
        if self._first_end is None:
            self._first_end = math.floor(epoch) + 1.0
        self._reports_since += epoch >= self._first_end
        if epoch > 0 and self.total is not None:
            self._has_many_epochs = self.total * epoch > 1.05 * done * self._first_end

    def _new_total(self, total: float | None) -> None:
        """Another total, ten times away, counts in another unit: begin afresh."""
        if total is not None and self.total is not None and not 0.1 < total / self.total < 10.0:
            self._units, self._seconds, self._end = [], [], []
            self.done = 0.0
            self._cached = None
        self.total = total

    def _append(self, units: float, seconds: float, end: float) -> None:
        self.began_s = self.began_s if self._units else self.t_s
        self._units.append(units)
        self._seconds.append(max(seconds, 1e-9))
        self._end.append(end)
        if len(self._units) > MAX_ENTRIES:
            self._merge()

    def _merge(self) -> None:
        """Make one entry of two, in the older half; pauses stay by themselves, with their places.

        Where slow entries are many they are no pauses, and are merged as all others.
        """
        kept, last = KEPT_ENTRIES, KEPT_ENTRIES + MAX_ENTRIES // 2
        units, seconds = np.asarray(self._units[kept:last]), np.asarray(self._seconds[kept:last])
        unit_s = seconds / units
        slow = unit_s > 1.5 * np.median(unit_s)
        if slow.mean() > 0.3:
            slow[:] = False
        starts, row = [], 0
        while row < len(units):
            starts.append(row)
            row += 1 if slow[row] or row + 1 == len(units) or slow[row + 1] else 2
        ends = np.append(starts[1:], len(units)) - 1
        self._units[kept:last] = np.add.reduceat(units, starts).tolist()
        self._seconds[kept:last] = np.add.reduceat(seconds, starts).tolist()
        self._end[kept:last] = [self._end[kept + int(end)] for end in ends]
