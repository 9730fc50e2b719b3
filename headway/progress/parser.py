"""Log bytes become progress points, whatever framework wrote them."""

import math
import re
from functools import partial

from headway.model.progress import ProgressPoint
from headway.progress.counting import RunCounter
from headway.progress.custom import CustomPattern
from headway.progress.formats import Certainty, Format, known_formats
from headway.progress.lines import LineSplitter
from headway.progress.options import stops_early
from headway.progress.places import shape_of
from headway.progress.seen import Seen
from headway.progress.stamps import LineClock

# What torchrun and MPI put before the lines of each rank: "[rank1]:", "[1,mpirank:1,algo-1]".
_RANK = re.compile(r"\s{0,4}\[(?:[0-9]{1,6},mpi)?rank[ :]?([0-9]{1,6})\b")
# What compose, pdsh and torchrun put before a line: "trainer-1  | ", "node-0: ", "[rank0]: ".
_LAUNCHER = re.compile(
    r"(?!(?i:epoch|step|iter|batch|round|fold))[A-Za-z][\w.-]{0,60}-[0-9]{1,5}(?: {1,40}\| |: )"
    r"|\s{0,4}\[rank[0-9]{1,6}\]: ?"
)
# "Fold 2/5"; and "Fold: 40%|", a bar of all of them, is the run's but where epochs are named.
# Of a namespace that is printed, "fold=0" is a setting.
_FOLD = re.compile(r"\b[Ff]olds?\b[ :#]{0,4}[0-9]{1,4}(%?)")
_NAMES_EPOCH = re.compile(r"\b[Ee]poch[ :#=]{0,4}[0-9]{1,6}(?![0-9%])")


class LogParser:
    """Finds progress in the log of one attempt.

    Feed it the log as it comes. The format is found by itself from the first
    lines; a surer one replaces it when it shows later (a download's bar comes
    before the training). What cannot be read is passed over, never an error.

    Args:
        pattern: The job's own regular expression; see `CustomPattern`. Then
            only that is read, and headway's own protocol is not.
        epochs: Epochs or rounds there will be, where the job says so; logs often
            do not, and then the total follows from it.
        iterations: Iterations there will be in all, the same.
        episodes: Of reinforcement learning, the same.
        stops_early: There may be fewer of all, as the job says; a log may say so, too.
        is_resumed: An earlier attempt may have done part of both.

    Raises:
        InvalidInput: *pattern* cannot be used.
    """

    def __init__(
        self,
        pattern: str | None = None,
        *,
        epochs: int | None = None,
        iterations: int | None = None,
        episodes: int | None = None,
        stops_early: bool = False,
        is_resumed: bool = False,
    ) -> None:
        self._splitter = LineSplitter()
        self._new_counter = partial(
            RunCounter, epochs, iterations=iterations, episodes=episodes, is_resumed=is_resumed
        )
        self._stops_early = stops_early
        self._counter = self._new_counter()
        self._found: Format | None = None
        self._clock = LineClock()
        self._rank: str | None = None
        self._has_folds = self._is_in_fold = False
        """What is counted comes again with the next fold: how often is not known."""
        self._better = known_formats() if pattern is None else (_custom(pattern),)

    @property
    def format(self) -> str | None:
        """Name of the format that was found; None so far."""
        return None if self._found is None else self._found.name

    @property
    def is_told(self) -> bool:
        """Whether what is read was printed for headway, or is read as the job says."""
        return self._found is not None and self._found.certainty is Certainty.PROTOCOL

    @property
    def may_end_early(self) -> bool:
        """Whether the total is but the most that there will be."""
        return self._stops_early or self._counter.may_be_less

    @property
    def is_part(self) -> bool:
        """Whether what is counted is one of several fits, folds or phases of the run."""
        return self._is_fold or self._counter.restarts > 0

    @property
    def _is_fold(self) -> bool:
        return self._is_in_fold and not self.is_told  # who counts for headway counts the run

    @property
    def units(self) -> int:
        """How often what is counted has become something of another length."""
        return self._counter.units

    @property
    def restarts(self) -> int:
        """How often the program began again from an earlier iteration."""
        return self._counter.restarts

    def feed(self, data: bytes, t_s: float) -> list[ProgressPoint]:
        """The points in the lines that *data* completes.

        Args:
            data: The next bytes of the log, cut anywhere.
            t_s: When they came, in seconds since the container started; NaN
                for a log that is read after the fact: then a point has the
                time its line says, since the first that says one, or NaN.
        """
        return self._points(self._splitter.feed(data), t_s)

    def cut(self) -> None:
        """Something of the log is passed over here; what comes next begins a line."""
        self._splitter.cut()

    def finish(self, t_s: float) -> list[ProgressPoint]:
        """The points in a last line without an end; call it when the log is over."""
        return self._points(self._splitter.finish(), t_s)

    def _points(self, lines: list[str], t_s: float) -> list[ProgressPoint]:
        points: list[ProgressPoint] = []
        is_recorded = math.isnan(t_s)
        for line in filter(None, lines):
            if is_recorded:
                t_s = self._clock.seconds(line)
            seen = self._read(line)
            if seen is not None and (point := self._counter.add(seen, t_s)) is not None:
                points.append(point._replace(total=None) if self._is_fold else point)
        return points

    def _read(self, line: str) -> Seen | None:
        """Read by a better format than the one found, where there is one; else by that."""
        if "rank" in line and (rank := _RANK.match(line)):
            # Only the first rank that a launcher marks is read.
            self._rank = self._rank or rank[0]
            if rank[0] != self._rank:
                return None
        if prefix := _LAUNCHER.match(line):
            line = line[prefix.end() :]
        shape = shape_of(line)
        self._look_for_limits(line)
        for candidate in self._better:
            seen = candidate.read(line, shape)
            if seen is not None:
                self._take(candidate)
                return seen
        return None if self._found is None else self._found.read(line, shape)

    def _look_for_limits(self, line: str) -> None:
        """Find out whether a total may be more, or less, than there will be."""
        if not self._stops_early and ("arly" in line or "atience" in line or "improve" in line):
            self._stops_early = stops_early(line)
        if not self._is_in_fold and ("old" in line or self._has_folds):
            fold = _FOLD.search(line)
            self._has_folds = self._has_folds or fold is not None
            names_epoch = self._has_folds and _NAMES_EPOCH.search(line) is not None
            self._is_in_fold = names_epoch or (fold is not None and not fold[1])

    def _take(self, found: Format) -> None:
        self._found = found
        self._better = tuple(f for f in self._better if f.certainty > found.certainty)
        if not found.keeps_count:
            self._counter = self._new_counter(counts=found.counts)


def _custom(pattern: str) -> Format:
    return Format("custom", CustomPattern(pattern), Certainty.PROTOCOL)
