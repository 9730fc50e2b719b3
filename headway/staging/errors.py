"""What is raised where a data set cannot be brought to the node."""

from headway.errors import StagingError, shown
from headway.units import format_size


class SourceMissing(StagingError):
    """The data set is not where the job says, or may not be read."""

    uri: str
    cause: str
    line = "data set {uri:quoted} cannot be read ({cause}); correct dataset.uri"


class SourceUnreachable(StagingError):
    """The storage that has the data set does not answer: may be tried again."""

    uri: str
    cause: str
    line = (
        "the storage of data set {uri:quoted} does not answer ({cause}); nothing of it was kept. "
        "Try again when it does"
    )


class SourceChanged(StagingError):
    """The data set changed while it was copied, again and again."""

    uri: str
    cause: str
    line = (
        "data set {uri:quoted} changed while it was copied ({cause}); nothing of it was kept. "
        "Start the job when the data set is complete"
    )


class StagingTimedOut(StagingError):
    """The data set was not on the node within the time that the job gives itself."""

    uri: str
    limit_s: float
    line = (
        "data set {uri:quoted} was not on the node within {limit_s:duration}, all of the job's "
        "max_runtime; nothing of it was kept. Raise max_runtime, or put the data set nearer"
    )


class ChecksumMismatch(StagingError):
    """The bytes that arrived are not the ones that were promised."""

    uri: str
    expected: str
    found: str
    line = (
        "data set {uri:quoted} has sha256 {found}, the job says {expected}; nothing of it was "
        "kept. Correct dataset.sha256, or restore the data"
    )


class CacheFull(StagingError):
    """The node's cache cannot hold the data set, even after evicting what is unused."""

    uri: str
    needed_bytes: int
    free_bytes: int
    passes: bool = False
    """Whether it could, once other runs let go of what they use."""
    whose: str = ""

    def __str__(self) -> str:
        """With whose share of the cache is full, and what to do."""
        beside = ", beside what those that are under way use"
        share = f" for runs of {self.whose}{beside}" if self.whose else ""
        later = "wait until a run that uses others has ended, " if self.passes else ""
        return (
            f"data set {shown(self.uri)} needs {format_size(self.needed_bytes)}, the node's cache "
            f"can free {format_size(self.free_bytes)}{share}; {later}raise the node's cache budget "
            "or use a smaller set"
        )
