"""Everything headway raises on purpose.

A message says what broke with its values and units, then the consequence, then the next step. An
error carries the values: they are its attributes, and its `line` says where they stand in the
message. Those that are raised with a text have no `line`.
"""

from dataclasses import dataclass
from inspect import get_annotations
from string import Formatter
from typing import Any, ClassVar, dataclass_transform

from headway.units import format_duration, format_size


class _Line(Formatter):
    """The message of an error, whose attributes stand in it.

    ``{uri:quoted}`` is `shown`; ``:plain`` the same without its quotes, ``:plain200`` with so many
    characters; ``:size`` and ``:duration`` have their units.
    """

    def get_value(self, key: int | str, _args: Any, error: Any) -> Any:
        """One of its attributes."""
        return getattr(error, str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        """As it may appear in a message."""
        if format_spec == "size":
            return format_size(value)
        if format_spec == "duration":
            return format_duration(value)
        if format_spec.startswith("plain"):
            return shown(value, int(format_spec[5:] or 80))[1:-1]
        return shown(value) if format_spec == "quoted" else str(value)


@dataclass_transform(eq_default=False)
class HeadwayError(Exception):
    """Root of the tree. `str(error)` is one readable line."""

    line: ClassVar[str] = ""
    exit_status = 1
    """Of the command line: 2 for what was asked for, 3 where somebody cannot be reached."""
    http_status = 500
    """Of the gateway's answer."""

    def __init_subclass__(cls) -> None:
        if get_annotations(cls):
            dataclass(eq=False, repr=False)(cls)

    def __str__(self) -> str:
        """The line with its values, or the text that it was raised with."""
        error: Any = self  # see `_Line.get_value`
        return _Line().vformat(self.line, (), error) if self.line else super().__str__()

    def __repr__(self) -> str:
        """Its name and line alone: a value may be an address with a password."""
        return f"{type(self).__name__}({str(self)!r})"


class InvalidInput(HeadwayError):
    """A field has a value that is not allowed."""

    exit_status = 2
    http_status = 422
    field: str
    """Dotted path of the field, such as ``resources.gpu_memory``."""
    value: object
    """What was given, as it was given."""
    allowed: str
    """What to give instead, as the end of a sentence ("give …")."""
    where: str = ""
    """File and line, such as ``job.yaml:7``; empty when unknown."""
    also: str = ""
    """What else is wrong with the same job, as more sentences; empty if nothing is known."""

    def __str__(self) -> str:
        """One line: where, field, value, what is allowed."""
        place = f"{self.where} " if self.where else ""
        return f"{place}{self.field}: got {shown(self.value)}; {self.allowed}{self.also}"


class ImpossibleDemand(InvalidInput):
    """No node of the site could ever hold what the job asks for."""


class SiteUnreachable(HeadwayError):
    """The Prefect server at *url* does not answer."""

    exit_status = 3
    http_status = 503
    url: str
    cause: str
    line = (
        "no site answers at {url} ({cause}); start one with `headway up`, or point PREFECT_API_URL "
        "at the one you mean"
    )


class SiteRefused(SiteUnreachable):
    """The Prefect server at *url* asks for an auth string, and this is not it."""

    line = (
        "the site at {url} refuses this auth string, or was told none ({cause}); nothing was "
        "changed. It is the line in the file auth in HEADWAY_HOME on the server's machine: give it "
        "as PREFECT_API_AUTH_STRING, for a node to `headway node join`"
    )


class SiteBroken(SiteUnreachable):
    """The Prefect server at *url* answers, but fails at what it was asked."""

    line = (
        "the Prefect server at {url} failed at a question ({cause}), so nothing is known of its "
        "answer; see server.log in the folder state of HEADWAY_HOME on its machine"
    )


class GatewayUnreachable(SiteUnreachable):
    """The gateway at *url* does not answer."""

    line = (
        "no gateway answers at {url} ({cause}), so it is not known whether anything was done; on "
        "the site's own machine `headway up` starts it and `headway doctor` says what is wrong, "
        "elsewhere HEADWAY_URL or `headway login` names the one you mean"
    )


class CertificateRefused(GatewayUnreachable):
    """The gateway at *url* shows another certificate than the one that is trusted."""

    line = (
        "the certificate at {url} is not the one that is trusted here ({cause}), so nothing was "
        "sent: somebody may stand between you and the site, or its operator has renewed it. Ask "
        "them for the fingerprint (`headway certificate`), then `headway login` again"
    )


class NoCredentials(HeadwayError):
    """No token is known here for the gateway at *url*."""

    exit_status = 3
    url: str
    line = (
        "no token is known here for the gateway at {url}, so nothing was asked; on the site's own "
        "machine start it with `headway up` as its operator, elsewhere give HEADWAY_URL and "
        "HEADWAY_TOKEN, or `headway login URL`"
    )


class GatewayRefused(HeadwayError):
    """The gateway answers with an error; *said* is its own line, which has the next step."""

    status: int
    said: str
    line = "{said}"

    def __post_init__(self) -> None:
        """Who asks for something wrong is told so; 3 where what is behind it is away."""
        if self.status in (401, 502, 503, 504):
            self.exit_status = 3
        elif 400 <= self.status < 429:
            self.exit_status = 2


def may_come_back(error: SiteUnreachable | GatewayRefused) -> bool:
    """Whether a gateway may answer later: it is away, or what it needs itself is."""
    return isinstance(error, SiteUnreachable) or error.status >= 500


class TokenRefused(HeadwayError):
    """The gateway was shown no token, or one that lets nobody in."""

    http_status = 401
    line = (
        "no valid token: none was shown, or it is unknown, has expired or was revoked. Show one as "
        "`Authorization: Bearer …`; an operator makes one with `headway user add`"
    )


class NotAllowed(HeadwayError):
    """Who asks is known, or need not be, and may not do this."""

    http_status = 403
    why: str
    line = "not allowed: {why:plain400}"


class RunFailed(HeadwayError):
    """Somebody waited for a run, which did not end well."""

    run_id: str
    name: str
    state: str
    cause: str

    def __str__(self) -> str:
        """With where to look."""
        name, cause = shown(self.name)[1:-1], self.cause or "no reason"
        look = f"`headway logs {self.run_id[:8]}` has what it wrote"
        return f"run {name} is {self.state}: {cause}; {look}"


class WaitTimedOut(HeadwayError):
    """Somebody waited for a run, which goes on."""

    run_id: str
    waited_s: float
    line = "run {run_id} has not ended within {waited_s:duration}; it goes on, wait again"


class EndUntold(HeadwayError):
    """A run has ended, and no worker has told Prefect so yet."""

    exit_status = 2
    http_status = 409
    run: str
    line = (
        "run {run:quoted} has ended, but no worker has told Prefect so yet, so it was not retried: "
        "try again in a few seconds; if it stays so, see `headway nodes`, and start its worker"
    )


class TooManyRequests(HeadwayError):
    """The same token, or the same address without one, asks too often."""

    http_status = 429
    wait_s: float
    line = "too many requests: nothing was done; try again in {wait_s:duration}"


class NodeNameTaken(HeadwayError):
    """Another home works as the node called *name*: its runs would be taken for lost."""

    name: str
    silent_s: float
    leases: int
    line = (
        "another machine, or another home on this one, is node {name}: it reported "
        "{silent_s:duration} ago and holds {leases} lease(s). This one did not become a node. Give "
        "it a name of its own with HEADWAY_NODE; or stop the other one with `headway node leave` "
        "there; or, if it does not come back, `headway node remove {name}`"
    )


class NodeSilent(HeadwayError):
    """Logs and outputs lie on *node*, which does not hand them out now."""

    http_status = 503
    node: str
    cause: str
    line = (
        "node {node} does not hand out its files ({cause}). What runs have left there stays there, "
        "and cannot be read until its worker is back: see `headway nodes`, and state/worker.log in "
        "its HEADWAY_HOME"
    )


class PeerFailed(HeadwayError):
    """*node* did not give what its cache has of a data set; the source still does."""

    node: str
    cause: str
    line = (
        "node {node} gave no part of the data set that it has ({cause}); it comes from another "
        "node or from its source"
    )


class PortClosed(HeadwayError):
    """A port of a run cannot be reached; None for whichever it would be given."""

    http_status = 409
    run: str
    port: int | None
    cause: str

    def __str__(self) -> str:
        """With where to look."""
        which = "the port" if self.port is None else f"port {self.port}"
        look = "See `headway show` for its state and its ports, `headway logs` for what it says"
        return f"{which} of run {shown(self.run)[1:-1]} cannot be reached: {self.cause}. {look}"


class ExecRefused(HeadwayError):
    """No command can be started beside the program of a run."""

    http_status = 409
    run: str
    cause: str
    line = "no command can be started in run {run:plain}: {cause}"


class OutputMissing(HeadwayError):
    """Of a run there is no *what*, or none any more."""

    http_status = 404
    run_id: str
    what: str
    why: str
    line = "run {run_id} has no {what}: {why}"


class StoreFailed(HeadwayError):
    """The site's store at *url* did not take, or give, what it was asked for."""

    http_status = 503
    url: str
    cause: str

    def __str__(self) -> str:
        """Of the address its scheme alone: the rest may have a password in it."""
        return (
            f"the site's store ({self.url.partition('://')[0]}) failed: {self.cause}. What a run "
            "left stays on its node until it is in the store; see HEADWAY_STORE_URL and the "
            "credentials of its storage there"
        )


class LedgerError(HeadwayError):
    """Something about the ledger's database."""

    def __init__(self, said: str) -> None:
        super().__init__(said)


class LedgerUnreachable(LedgerError):
    """The database does not answer or refuses to write; nothing was granted."""

    exit_status = 3
    http_status = 503
    url: str
    cause: str
    line = (
        "the ledger at {url} cannot be used ({cause}); nothing was granted or changed. It is tried "
        "again; `headway doctor` shows what is wrong"
    )


class LedgerRefused(LedgerError):
    """The login by which the ledger was opened may not do that: a node's may do little."""

    cause: str
    line = (
        "the login by which the ledger was opened may not do that ({cause}); nothing was changed. "
        "A node's own login may do what its agent does: do it on the site's machine"
    )


class LedgerMissing(LedgerError):
    """There is no ledger where it is looked for, so nothing is known of the site."""

    exit_status = 3
    url: str
    line = (
        "there is no ledger at {url}, so nothing is known of nodes and runs; start a site with "
        "`headway up`, or set HEADWAY_HOME to the home of one"
    )


class TermOver(LedgerError):
    """A scheduler wrote in a term that is over: another one leads the pool, and plans anew."""

    pool: str
    number: int
    now: int
    line = (
        "term {number} of pool {pool} is over, its scheduler is in term {now} now; nothing was "
        "written, and the leader of that term plans anew"
    )


class SchemaMismatch(LedgerError):
    """The tables are older or newer than this code."""

    found: str
    expected: str
    line = (
        "the ledger's schema is {found}, this headway needs {expected}; run `headway up` with one "
        "version on every node"
    )


class LeaseLost(LedgerError):
    """The attempt holds its run's lease no more: it must stop, and write nothing."""

    run_id: str
    attempt: int
    cause: str
    line = (
        "attempt {attempt} of run {run_id} holds its lease no more ({cause}); its memory may "
        "already be promised to others. Nothing was changed in the ledger: the attempt stops its "
        "own container and leaves; `headway show` tells where the run is now"
    )


class IllegalTransition(LedgerError):
    """A run cannot go from state *found* to state *wanted*: somebody was faster."""

    run_id: str
    found: str
    wanted: str
    line = "run {run_id} is {found} and cannot become {wanted}; nothing was changed"


class RunUnknown(LedgerError):
    """No run has this id or name."""

    exit_status = 2
    http_status = 404
    run: str
    line = (
        "no run is called {run:quoted}; `headway runs` lists them, `headway show` the members of "
        "an array"
    )


class RuntimeFailure(HeadwayError):
    """Something about the container runtime."""

    def __init__(self, said: str) -> None:
        super().__init__(said)


class EngineUnreachable(RuntimeFailure):
    """The container engine does not answer in time."""

    action: str
    cause: str
    line = (
        "the container engine did not answer while headway tried to {action} ({cause}); it is "
        "tried again, running containers are not touched"
    )


class EngineSilent(EngineUnreachable):
    """An engine is or was here and does not answer: programs are not started without it."""

    address: str
    line = (
        "the container engine at {address:quoted} did not answer while headway tried to {action} "
        "({cause}), and this node has or had one; no program is started outside a container "
        "instead. Start the engine and try again, or set HEADWAY_RUNTIME=process to do without one"
    )


class ImageMissing(RuntimeFailure):
    """The image is not on the node and cannot be pulled."""

    image: str
    cause: str
    line = (
        "image {image:quoted} is not on this node and could not be pulled ({cause}); build or pull "
        "it there, or correct the name"
    )


class ContainerExists(RuntimeFailure):
    """The name is taken: another process created this attempt first."""

    name: str
    line = "container {name} exists already; it is followed, not started again"


class ContainerMissing(RuntimeFailure):
    """No container has this name."""

    name: str
    line = "container {name} does not exist on this node (any more)"


class PolicyViolation(RuntimeFailure):
    """The site's container policy forbids what the job asks for."""

    what: str
    value: object
    allowed: str
    line = "{what}: {value:quoted} is not allowed on this site; {allowed}"


class CeilingUnsafe(HeadwayError):
    """The file with the bounds of this node cannot be trusted: the node starts nothing."""

    path: str
    cause: str
    line = (
        "the ceiling at {path} cannot be trusted ({cause}); this node starts nothing until it is a "
        "readable file that belongs to root and that only root may change"
    )


class EngineError(HeadwayError):
    """Something about the scheduler that decides who runs on a cluster."""


class EngineAway(EngineError):
    """The scheduler does not answer a command."""

    engine: str
    command: str
    cause: str
    line = (
        "{engine} did not answer `{command}` ({cause}), so nothing new is known of its jobs; those "
        "that run go on. It is asked again, and what was handed in is never handed in twice"
    )


class EngineRefused(EngineError):
    """The scheduler does not take the job of this key, for the reason that it *said*."""

    engine: str
    key: str
    said: str
    line = (
        "{engine} does not take job {key:plain}: {said:plain400}. It was not handed in; change "
        "what it asks for, or its pool"
    )


class TelemetryError(HeadwayError):
    """A reading could not be had. Never to be read as "nothing is used"."""


class NvmlUnavailable(TelemetryError):
    """NVML cannot be used: no library, or it does not match the driver."""

    cause: str
    line = "NVML cannot be used ({cause}); no GPU job starts on this node until it can"


class GpuLost(TelemetryError):
    """A GPU fell off the bus."""

    gpu: str
    cause: str
    line = "GPU {gpu} is lost ({cause}); nothing more is started on it"


class TelemetryTimeout(TelemetryError):
    """A reading did not come in time."""

    what: str
    waited_s: float
    line = (
        "{what} gave no reading within {waited_s:duration}; no GPU job starts on this node until "
        "it does"
    )


class StagingError(HeadwayError):
    """A data set could not be brought to the node."""


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


class CacheUnusable(StagingError):
    """The node's cache cannot be written."""

    path: str
    cause: str
    line = (
        "the node's data cache {path} cannot be used ({cause}); no data set can be staged there "
        "until an operator repairs it"
    )


class CodeMissing(StagingError):
    """The code that a run brought along is not to be had any more."""

    code_id: str
    cause: str
    line = (
        "code {code_id:quoted} cannot be brought to this node ({cause}); nothing was started. Hand "
        "the job in again from its folder"
    )


class EstimatorDamaged(HeadwayError):
    """A model file cannot be trusted; the version before it, or the prior, is used."""

    path: str
    cause: str
    line = "estimator file {path} is not usable ({cause}); it is left out"


class NotInstalled(HeadwayError):
    """What was asked for needs a package that only an extra of headway's brings."""

    http_status = 501
    what: str
    package: str
    extra: str
    line = "{what} need {package}, which is not installed here: pip install 'headway[{extra}]'"


class ProfileUnreadable(HeadwayError):
    """A profiler's report cannot be read. The run itself is not touched by it."""

    path: str
    cause: str
    line = "the report {path} cannot be read ({cause:plain200}); the run is not touched by it"


def shown(value: object, limit: int = 80) -> str:
    """*value* as it may appear in a message: quoted, one line, at most *limit* characters.

    Control characters, lone surrogates and marks that reorder text come out
    escaped, so that a hostile name cannot rewrite the message around it.
    """
    try:
        text = value if isinstance(value, str) else repr(value)
    except ValueError:  # Python writes no number of more than 4300 digits
        text = "a number with too many digits"
    text = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode("ascii")
        for c in text[: limit + 1]
    )
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return f'"{text}"' if isinstance(value, str) else text
