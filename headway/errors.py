"""What headway raises on purpose, and more than one of its rooms knows.

What one room raises is in its own `errors.py`.

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


class GrantNotKept(HeadwayError):
    """What keeps a run to its memory of a GPU, as its node says, did not take for this run."""

    gpu: str
    node: str
    cause: str
    line = (
        "{cause}: nothing was started on {gpu} under less than node {node} had said. Runs that "
        "share it are watched from now on, until the node's agent tries again; this one waits for "
        "its place again"
    )


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
    """A run has ended, and no scheduler has told Prefect so yet."""

    exit_status = 2
    http_status = 409
    run: str
    line = (
        "run {run:quoted} has ended, but no scheduler has told Prefect so yet, so it was not "
        "retried: try again in a few seconds; if it stays so, ask `headway doctor` what is missing"
    )


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


class LedgerMissing(LedgerError):
    """There is no ledger where it is looked for, so nothing is known of the site."""

    exit_status = 3
    url: str
    line = (
        "there is no ledger at {url}, and this command is for operators on a machine "
        "of the site. Start a site with `headway up`, or set HEADWAY_HOME to the home of one"
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


class RunUnknown(LedgerError):
    """No run has this id or name."""

    exit_status = 2
    http_status = 404
    run: str
    line = (
        "no run that this command takes is called {run:quoted}: `headway runs` lists runs and "
        "arrays, `headway show` the members of an array"
    )


class StagingError(HeadwayError):
    """A data set could not be brought to the node."""


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
        "code {code_id:quoted} cannot be brought to this node ({cause}); nothing was started. "
        "Submit the job again from its folder"
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
