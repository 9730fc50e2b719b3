"""Everything headway raises on purpose.

    HeadwayError
    ├── InvalidInput            a field has a value that is not allowed
    │   └── ImpossibleDemand    no node of the site could ever hold it
    ├── SiteUnreachable         the Prefect server does not answer
    │   ├── SiteRefused         it answers, but not to this auth string
    │   ├── SiteBroken          it answers with an error of its own
    │   └── GatewayUnreachable  the gateway does not answer
    ├── NoCredentials           no gateway is known here, or no token for it
    ├── GatewayRefused          the gateway answers that it will not, or cannot
    ├── TokenRefused            the gateway lets nobody in without a valid token
    ├── NotAllowed              the token, or the page that asks, may not do this
    ├── RunFailed               somebody waited for a run, which did not end well
    ├── WaitTimedOut            somebody waited for a run, which goes on
    ├── EndUntold               Prefect has not been told yet how the run ended
    ├── TooManyRequests         somebody asks the gateway too often
    ├── NodeNameTaken           another machine or home works under this node's name
    ├── NodeSilent              a node does not hand out the files that lie there
    ├── ExecRefused             no command can be started beside the program of a run
    ├── OutputMissing           a run has no such output, or none any more
    ├── StoreFailed             the site's store of ended runs does not do what it is asked
    ├── LedgerError
    │   ├── LedgerUnreachable   the database does not answer, or refuses to write
    │   ├── LedgerRefused       the login by which it was opened may not do that
    │   ├── LedgerMissing       there is no ledger where it is looked for
    │   ├── TermOver            another scheduler leads the pool by now
    │   ├── SchemaMismatch      the tables are older or newer than this code
    │   ├── LeaseLost           the lease was given away, or is held by another token
    │   ├── IllegalTransition   a run cannot go from this state to that
    │   └── RunUnknown          no such run
    ├── RuntimeFailure
    │   ├── EngineUnreachable   the container engine does not answer in time
    │   │   └── EngineSilent    nor did it when this node's runtime was to be settled
    │   ├── ImageMissing        the image is not here and cannot be pulled
    │   ├── ContainerExists     the name is taken: another attempt won the race
    │   ├── ContainerMissing    no such container
    │   └── PolicyViolation     the site's container policy forbids it
    ├── EngineError             the scheduler of a cluster that is not headway's own
    │   ├── EngineAway          it does not answer
    │   └── EngineRefused       it does not take a job
    ├── TelemetryError
    │   ├── NvmlUnavailable     no driver, or driver and library do not match
    │   ├── GpuLost             a GPU fell off the bus
    │   └── TelemetryTimeout    a reading did not come in time
    ├── StagingError
    │   ├── SourceMissing       the data set is not where the job says
    │   ├── SourceUnreachable   its storage does not answer
    │   ├── SourceChanged       it changed while it was copied
    │   ├── StagingTimedOut     it was not here within the job's time
    │   ├── ChecksumMismatch    the bytes are not the ones that were promised
    │   ├── CacheFull           the node's cache cannot hold it
    │   ├── CacheUnusable       the node's cache cannot be written
    │   └── CodeMissing         the code that a run brought along is not to be had any more
    ├── CeilingUnsafe           not only root can have written the bounds of this node
    ├── EstimatorDamaged        a model file cannot be trusted
    └── ProfileUnreadable       a profiler's report cannot be read

A message says what broke with its values and units, then the consequence,
then the next step. The values are attributes too.
"""

from headway.units import format_duration, format_size


class HeadwayError(Exception):
    """Root of the tree. `str(error)` is one readable line."""


class InvalidInput(HeadwayError):
    """A field has a value that is not allowed.

    Attributes:
        field: Dotted path of the field, such as ``resources.gpu_memory``.
        value: What was given, as it was given.
        allowed: What to give instead, as the end of a sentence ("give …").
        where: File and line, such as ``job.yaml:7``; empty when unknown.
        also: What else is wrong with the same job, as more sentences; empty if nothing is known.
    """

    def __init__(
        self, field: str, value: object, allowed: str, *, where: str = "", also: str = ""
    ) -> None:
        self.field = field
        self.value = value
        self.allowed = allowed
        self.where = where
        self.also = also
        super().__init__(field, value, allowed, where)

    def __str__(self) -> str:
        """One line: where, field, value, what is allowed."""
        place = f"{self.where} " if self.where else ""
        return f"{place}{self.field}: got {shown(self.value)}; {self.allowed}{self.also}"


class ImpossibleDemand(InvalidInput):
    """No node of the site could ever hold what the job asks for."""


class SiteUnreachable(HeadwayError):
    """The Prefect server at *url* does not answer."""

    def __init__(self, url: str, cause: str) -> None:
        self.url = url
        self.cause = cause
        super().__init__(
            f"no site answers at {url} ({cause}); start one with `headway up`, "
            "or point PREFECT_API_URL at the one you mean"
        )


class SiteRefused(SiteUnreachable):
    """The Prefect server at *url* asks for an auth string, and this is not it."""

    def __init__(self, url: str, cause: str) -> None:
        self.url = url
        self.cause = cause
        HeadwayError.__init__(
            self,
            f"the site at {url} refuses this auth string, or was told none ({cause}); nothing was "
            "changed. It is the line in the file auth in HEADWAY_HOME on the server's machine: "
            "give it as PREFECT_API_AUTH_STRING, for a node to `headway node join`",
        )


class SiteBroken(SiteUnreachable):
    """The Prefect server at *url* answers, but fails at what it was asked."""

    def __init__(self, url: str, cause: str) -> None:
        self.url = url
        self.cause = cause
        HeadwayError.__init__(
            self,
            f"the Prefect server at {url} failed at a question ({cause}), so nothing is known of "
            "its answer; see server.log in the folder state of HEADWAY_HOME on its machine",
        )


class GatewayUnreachable(SiteUnreachable):
    """The gateway at *url* does not answer."""

    def __init__(self, url: str, cause: str) -> None:
        self.url = url
        self.cause = cause
        HeadwayError.__init__(
            self,
            f"no gateway answers at {url} ({cause}), so it is not known whether anything was done; "
            "on the site's own machine `headway up` starts it and `headway doctor` says what is "
            "wrong, elsewhere HEADWAY_URL or `headway login` names the one you mean",
        )


class CertificateRefused(GatewayUnreachable):
    """The gateway at *url* shows another certificate than the one that is trusted."""

    def __init__(self, url: str, cause: str) -> None:
        self.url = url
        self.cause = cause
        HeadwayError.__init__(
            self,
            f"the certificate at {url} is not the one that is trusted here ({cause}), so nothing "
            "was sent: somebody may stand between you and the site, or its operator has renewed "
            "it. Ask them for the fingerprint (`headway certificate`), then `headway login` again",
        )


class NoCredentials(HeadwayError):
    """No token is known here for the gateway at *url*."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(
            f"no token is known here for the gateway at {url}, so nothing was asked; on the "
            "site's own machine start it with `headway up` as its operator, elsewhere give "
            "HEADWAY_URL and HEADWAY_TOKEN, or `headway login URL`"
        )


class GatewayRefused(HeadwayError):
    """The gateway answers with an error; *said* is its own line, which has the next step."""

    def __init__(self, status: int, said: str) -> None:
        self.status = status
        self.said = said
        super().__init__(said)

    @property
    def exit_status(self) -> int:
        """Of the command line: 2 for what was asked for, 3 where somebody cannot be reached."""
        if self.status in (401, 502, 503, 504):
            return 3
        return 2 if 400 <= self.status < 429 else 1


def may_come_back(error: SiteUnreachable | GatewayRefused) -> bool:
    """Whether a gateway may answer later: it is away, or what it needs itself is."""
    return isinstance(error, SiteUnreachable) or error.status >= 500


class TokenRefused(HeadwayError):
    """The gateway was shown no token, or one that lets nobody in."""

    def __init__(self) -> None:
        super().__init__(
            "no valid token: none was shown, or it is unknown, has expired or was revoked. "
            "Show one as `Authorization: Bearer …`; an operator makes one with `headway user add`"
        )


class NotAllowed(HeadwayError):
    """Who asks is known, or need not be, and may not do this."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"not allowed: {shown(why, 400)[1:-1]}")


class RunFailed(HeadwayError):
    """Somebody waited for a run, which did not end well."""

    def __init__(self, run_id: str, name: str, state: str, cause: str) -> None:
        self.run_id = run_id
        self.state = state
        self.cause = cause
        look = f"`headway logs {run_id[:8]}` has what it wrote"
        super().__init__(f"run {shown(name)[1:-1]} is {state}: {cause or 'no reason'}; {look}")


class WaitTimedOut(HeadwayError):
    """Somebody waited for a run, which goes on."""

    def __init__(self, run_id: str, waited_s: float) -> None:
        self.run_id = run_id
        self.waited_s = waited_s
        waited = format_duration(waited_s)
        super().__init__(f"run {run_id} has not ended within {waited}; it goes on, wait again")


class EndUntold(HeadwayError):
    """A run has ended, and no worker has told Prefect so yet."""

    def __init__(self, run: str) -> None:
        self.run = run
        super().__init__(
            f"run {shown(run)} has ended, but no worker has told Prefect so yet, so it was not "
            "retried: try again in a few seconds; if it stays so, see `headway nodes`, and start "
            "its worker"
        )


class TooManyRequests(HeadwayError):
    """The same token, or the same address without one, asks too often."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s
        super().__init__(
            f"too many requests: nothing was done; try again in {format_duration(wait_s)}"
        )


class NodeNameTaken(HeadwayError):
    """Another home works as the node called *name*: its runs would be taken for lost."""

    def __init__(self, name: str, silent_s: float, leases: int) -> None:
        self.name = name
        self.silent_s = silent_s
        self.leases = leases
        super().__init__(
            f"another machine, or another home on this one, is node {name}: it reported "
            f"{format_duration(silent_s)} ago and holds {leases} lease(s). This one did not "
            "become a node. Give it a name of its own with HEADWAY_NODE; or stop the other one "
            f"with `headway node leave` there; or, if it does not come back, "
            f"`headway node remove {name}`"
        )


class NodeSilent(HeadwayError):
    """Logs and outputs lie on *node*, which does not hand them out now."""

    def __init__(self, node: str, cause: str) -> None:
        self.node = node
        self.cause = cause
        super().__init__(
            f"node {node} does not hand out its files ({cause}). What runs have left there stays "
            "there, and cannot be read until its worker is back: see `headway nodes`, and "
            "state/worker.log in its HEADWAY_HOME"
        )


class PeerFailed(HeadwayError):
    """*node* did not give what its cache has of a data set; the source still does."""

    def __init__(self, node: str, cause: str) -> None:
        self.node = node
        self.cause = cause
        super().__init__(
            f"node {node} gave no part of the data set that it has ({cause}); it comes from "
            "another node or from its source"
        )


class PortClosed(HeadwayError):
    """A port of a run cannot be reached; None for whichever it would be given."""

    def __init__(self, run: str, port: int | None, cause: str) -> None:
        self.run = run
        self.port = port
        self.cause = cause
        which = "the port" if port is None else f"port {port}"
        super().__init__(
            f"{which} of run {shown(run)[1:-1]} cannot be reached: {cause}. See "
            "`headway show` for its state and its ports, `headway logs` for what it says"
        )


class ExecRefused(HeadwayError):
    """No command can be started beside the program of a run."""

    def __init__(self, run: str, cause: str) -> None:
        self.run = run
        self.cause = cause
        super().__init__(f"no command can be started in run {shown(run)[1:-1]}: {cause}")


class OutputMissing(HeadwayError):
    """Of a run there is no *what*, or none any more."""

    def __init__(self, run_id: str, what: str, why: str) -> None:
        self.run_id = run_id
        self.what = what
        self.why = why
        super().__init__(f"run {run_id} has no {what}: {why}")


class StoreFailed(HeadwayError):
    """The site's store at *url* did not take, or give, what it was asked for."""

    def __init__(self, url: str, cause: str) -> None:
        self.url = url
        self.cause = cause
        place = url.partition("://")[0]  # the rest may have a password in it
        super().__init__(
            f"the site's store ({place}) failed: {cause}. What a run left stays on its node until "
            "it is in the store; see HEADWAY_STORE_URL and the credentials of its storage there"
        )


class LedgerError(HeadwayError):
    """Something about the ledger's database."""


class LedgerUnreachable(LedgerError):
    """The database does not answer or refuses to write; nothing was granted."""

    def __init__(self, url: str, cause: str) -> None:
        self.url = url
        self.cause = cause
        super().__init__(
            f"the ledger at {url} cannot be used ({cause}); nothing was granted or changed. "
            "It is tried again; `headway doctor` shows what is wrong"
        )


class LedgerRefused(LedgerError):
    """The login by which the ledger was opened may not do that: a node's may do little."""

    def __init__(self, cause: str) -> None:
        self.cause = cause
        super().__init__(
            f"the login by which the ledger was opened may not do that ({cause}); nothing was "
            "changed. A node's own login may do what its agent does: do it on the site's machine"
        )


class LedgerMissing(LedgerError):
    """There is no ledger where it is looked for, so nothing is known of the site."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(
            f"there is no ledger at {url}, so nothing is known of nodes and runs; "
            "start a site with `headway up`, or set HEADWAY_HOME to the home of one"
        )


class TermOver(LedgerError):
    """A scheduler wrote in a term that is over: another one leads the pool, and plans anew."""

    def __init__(self, pool: str, number: int, now: int) -> None:
        self.pool, self.number, self.now = pool, number, now
        super().__init__(
            f"term {number} of pool {pool} is over, its scheduler is in term {now} now; "
            "nothing was written, and the leader of that term plans anew"
        )


class SchemaMismatch(LedgerError):
    """The tables are older or newer than this code."""

    def __init__(self, found: str | None, expected: str) -> None:
        self.found = found
        self.expected = expected
        super().__init__(
            f"the ledger's schema is {found or 'empty'}, this headway needs {expected}; "
            "run `headway up` with one version on every node"
        )


class LeaseLost(LedgerError):
    """The attempt holds its run's lease no more: it must stop, and write nothing."""

    def __init__(self, run_id: str, attempt: int, cause: str) -> None:
        self.run_id = run_id
        self.attempt = attempt
        self.cause = cause
        super().__init__(
            f"attempt {attempt} of run {run_id} holds its lease no more ({cause}); its memory may "
            "already be promised to others. Nothing was changed in the ledger: the attempt stops "
            "its own container and leaves; `headway show` tells where the run is now"
        )


class IllegalTransition(LedgerError):
    """A run cannot go from state *found* to state *wanted*: somebody was faster."""

    def __init__(self, run_id: str, found: str, wanted: str) -> None:
        self.run_id = run_id
        self.found = found
        self.wanted = wanted
        super().__init__(f"run {run_id} is {found} and cannot become {wanted}; nothing was changed")


class RunUnknown(LedgerError):
    """No run has this id or name."""

    def __init__(self, run: str) -> None:
        self.run = run
        look = "`headway runs` lists them, `headway show` the members of an array"
        super().__init__(f"no run is called {shown(run)}; {look}")


class RuntimeFailure(HeadwayError):
    """Something about the container runtime."""


class EngineUnreachable(RuntimeFailure):
    """The container engine does not answer in time."""

    def __init__(self, action: str, cause: str) -> None:
        self.action = action
        self.cause = cause
        super().__init__(
            f"the container engine did not answer while headway tried to {action} ({cause}); "
            "it is tried again, running containers are not touched"
        )


class EngineSilent(EngineUnreachable):
    """An engine is or was here and does not answer: programs are not started without it."""

    def __init__(self, address: str, cause: str) -> None:
        self.address = address
        self.action = "find out whether it is there"
        self.cause = cause
        RuntimeFailure.__init__(
            self,
            f"the container engine at {shown(address)} does not answer ({cause}), and this node "
            "has or had one; no program is started outside a container instead. Start the engine "
            "and try again, or set HEADWAY_RUNTIME=process to do without one",
        )


class ImageMissing(RuntimeFailure):
    """The image is not on the node and cannot be pulled."""

    def __init__(self, image: str, cause: str) -> None:
        self.image = image
        self.cause = cause
        super().__init__(
            f"image {shown(image)} is not on this node and could not be pulled ({cause}); "
            "build or pull it there, or correct the name"
        )


class ContainerExists(RuntimeFailure):
    """The name is taken: another process created this attempt first."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"container {name} exists already; it is followed, not started again")


class ContainerMissing(RuntimeFailure):
    """No container has this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"container {name} does not exist on this node (any more)")


class PolicyViolation(RuntimeFailure):
    """The site's container policy forbids what the job asks for."""

    def __init__(self, what: str, value: object, allowed: str) -> None:
        self.what = what
        self.value = value
        self.allowed = allowed
        super().__init__(f"{what}: {shown(value)} is not allowed on this site; {allowed}")


class CeilingUnsafe(HeadwayError):
    """The file with the bounds of this node cannot be trusted: the node starts nothing."""

    def __init__(self, path: str, cause: str) -> None:
        self.path = path
        self.cause = cause
        super().__init__(
            f"the ceiling at {path} cannot be trusted ({cause}); this node starts nothing until "
            "it is a readable file that belongs to root and that only root may change"
        )


class EngineError(HeadwayError):
    """Something about the scheduler that decides who runs on a cluster."""


class EngineAway(EngineError):
    """The scheduler does not answer a command."""

    def __init__(self, engine: str, command: str, cause: str) -> None:
        self.engine = engine
        self.command = command
        self.cause = cause
        super().__init__(
            f"{engine} did not answer `{command}` ({cause}), so nothing new is known of its jobs; "
            "those that run go on. It is asked again, and what was handed in is never handed in "
            "twice"
        )


class EngineRefused(EngineError):
    """The scheduler does not take the job of this key, for the reason that it *said*."""

    def __init__(self, engine: str, key: str, said: str) -> None:
        self.engine = engine
        self.key = key
        self.said = said
        super().__init__(
            f"{engine} does not take job {shown(key)[1:-1]}: {shown(said, 400)[1:-1]}. It was not "
            "handed in; change what it asks for, or its pool"
        )


class TelemetryError(HeadwayError):
    """A reading could not be had. Never to be read as "nothing is used"."""


class NvmlUnavailable(TelemetryError):
    """NVML cannot be used: no library, or it does not match the driver."""

    def __init__(self, cause: str) -> None:
        self.cause = cause
        super().__init__(
            f"NVML cannot be used ({cause}); no GPU job starts on this node until it can"
        )


class GpuLost(TelemetryError):
    """A GPU fell off the bus."""

    def __init__(self, gpu: str, cause: str) -> None:
        self.gpu = gpu
        self.cause = cause
        super().__init__(f"GPU {gpu} is lost ({cause}); nothing more is started on it")


class TelemetryTimeout(TelemetryError):
    """A reading did not come in time."""

    def __init__(self, what: str, waited_s: float) -> None:
        self.what = what
        self.waited_s = waited_s
        super().__init__(
            f"{what} gave no reading within {format_duration(waited_s)}; "
            "no GPU job starts on this node until it does"
        )


class StagingError(HeadwayError):
    """A data set could not be brought to the node."""


class SourceMissing(StagingError):
    """The data set is not where the job says, or may not be read."""

    def __init__(self, uri: str, cause: str) -> None:
        self.uri = uri
        self.cause = cause
        super().__init__(f"data set {shown(uri)} cannot be read ({cause}); correct dataset.uri")


class SourceUnreachable(StagingError):
    """The storage that has the data set does not answer: may be tried again."""

    def __init__(self, uri: str, cause: str) -> None:
        self.uri = uri
        self.cause = cause
        super().__init__(
            f"the storage of data set {shown(uri)} does not answer ({cause}); nothing of it was "
            "kept. Try again when it does"
        )


class SourceChanged(StagingError):
    """The data set changed while it was copied, again and again."""

    def __init__(self, uri: str, cause: str) -> None:
        self.uri = uri
        self.cause = cause
        super().__init__(
            f"data set {shown(uri)} changed while it was copied ({cause}); nothing of it was kept. "
            "Start the job when the data set is complete"
        )


class StagingTimedOut(StagingError):
    """The data set was not on the node within the time that the job gives itself."""

    def __init__(self, uri: str, limit_s: float) -> None:
        self.uri = uri
        self.limit_s = limit_s
        super().__init__(
            f"data set {shown(uri)} was not on the node within {format_duration(limit_s)}, all "
            "of the job's max_runtime; nothing of it was kept. Raise max_runtime, or put the "
            "data set nearer"
        )


class ChecksumMismatch(StagingError):
    """The bytes that arrived are not the ones that were promised."""

    def __init__(self, uri: str, expected: str, found: str) -> None:
        self.uri = uri
        self.expected = expected
        self.found = found
        super().__init__(
            f"data set {shown(uri)} has sha256 {found}, the job says {expected}; nothing of it "
            "was kept. Correct dataset.sha256, or restore the data"
        )


class CacheFull(StagingError):
    """The node's cache cannot hold the data set, even after evicting what is unused.

    Attributes:
        passes: Whether it could, once other runs let go of what they use.
    """

    def __init__(
        self, uri: str, needed_bytes: int, free_bytes: int, *, passes: bool = False, whose: str = ""
    ) -> None:
        self.uri = uri
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        self.passes = passes
        share = f" for runs of {whose}, beside what those that are under way use" if whose else ""
        later = "wait until a run that uses others has ended, " if passes else ""
        super().__init__(
            f"data set {shown(uri)} needs {format_size(needed_bytes)}, the node's cache can free "
            f"{format_size(free_bytes)}{share}; {later}raise the node's cache budget or use a "
            "smaller set"
        )


class CacheUnusable(StagingError):
    """The node's cache cannot be written."""

    def __init__(self, path: str, cause: str) -> None:
        self.path = path
        self.cause = cause
        super().__init__(
            f"the node's data cache {path} cannot be used ({cause}); no data set can be staged "
            "there until an operator repairs it"
        )


class CodeMissing(StagingError):
    """The code that a run brought along is not to be had any more."""

    def __init__(self, code_id: str, cause: str) -> None:
        self.code_id = code_id
        self.cause = cause
        super().__init__(
            f"code {shown(code_id)} cannot be brought to this node ({cause}); nothing was started. "
            "Hand the job in again from its folder"
        )


class EstimatorDamaged(HeadwayError):
    """A model file cannot be trusted; the version before it, or the prior, is used."""

    def __init__(self, path: str, cause: str) -> None:
        self.path = path
        self.cause = cause
        super().__init__(f"estimator file {path} is not usable ({cause}); it is left out")


class ProfileUnreadable(HeadwayError):
    """A profiler's report cannot be read. The run itself is not touched by it."""

    def __init__(self, path: str, cause: str) -> None:
        self.path = path
        self.cause = cause
        super().__init__(
            f"the report {path} cannot be read ({shown(cause, 200)[1:-1]}); "
            "the run is not touched by it"
        )


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
