"""What each command prints with --json: its shape, whether an answer has it, and real examples.

    python benchmarks/answers.py    # examples of a site of its own, into benchmarks/answers.json

docs/reference/json.md is made of both; the tests' live sites check each answer that they get.
"""

import enum
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NotRequired, TypedDict, Union, get_args, get_origin, get_type_hints

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from headway.admin.config_file import Change as ConfigChange  # noqa: E402
from headway.admin.doctor import Finding as Checked  # noqa: E402
from headway.admin.down import Halted  # noqa: E402
from headway.admin.node_removal import Removed  # noqa: E402
from headway.estimate.features import Unit  # noqa: E402
from headway.ledger.engines import EnginePoolRecord  # noqa: E402
from headway.model.access import AuditEntry  # noqa: E402
from headway.model.engine import EnginePool  # noqa: E402
from headway.model.inspection import Kind  # noqa: E402
from headway.model.lease import Basis, Resource  # noqa: E402
from headway.model.profile import Activity, Direction, ProfileSource  # noqa: E402
from headway.model.run import Exit  # noqa: E402
from headway.model.run_warning import Silent  # noqa: E402
from headway.model.staged import Staging  # noqa: E402
from headway.views.answers import (  # noqa: E402
    AheadShown,
    At,
    AttemptShown,
    Code,
    DemandShown,
    HolderShown,
    LeaseShown,
    Predicted,
    ProgressShown,
    Quantities,
    RankShown,
    StartTold,
    StepShown,
    StoredShown,
    Waiting,
)  # fmt: skip
from headway.views.array_document import ArrayLine, Member  # noqa: E402
from headway.views.node_document import NodeShown  # noqa: E402
from tests.support.site import LiveSite, live_site, sleeper, wait_for  # noqa: E402

EXAMPLES = Path(__file__).with_suffix(".json")
MOST = 80
"""Characters of a text of an example."""


class CopiesShown(TypedDict):
    """All copies in one direction."""

    direction: Direction
    gpu: str | None
    """Null: all GPUs of the run together."""
    bytes: int
    seconds: float
    bytes_per_s: float
    peak_bytes_per_s: float | None
    link: str | None
    limit_bytes_per_s: float | None
    count: int | None
    pageable_bytes: int | None
    text: str


class KernelShown(TypedDict):
    """All launches of a kernel."""

    name: str
    launches: int
    seconds: float


class ProfileShown(TypedDict):
    """How a run used its GPUs."""

    source: ProfileSource
    window_s: float
    copies: list[CopiesShown]
    kernels: list[KernelShown]
    kernels_s: float | None
    busy_frac: float | None
    activity: Activity
    notes: list[str]
    report: str | None
    """Path of nsys's own report."""
    text: str


class RunLine(TypedDict):
    """A run."""

    run_id: str
    name: str
    owner: str | None
    """Null until the ledger knows the run; so are `team`, `node` and `size`."""
    node: str | None
    runtime: str | None
    """`docker`, `process`, or the engine that it was handed to."""
    team: str | None
    started_at: At | None
    ended_at: At | None
    state: str
    """As Prefect calls it."""
    reason: str
    """What it waits for or does before its program starts, else how it ended."""
    attempt: int
    size: str | None
    """Of a job with a range: what it has of it, in words."""
    exit: Exit | None
    submitted_at: At | None
    duration_s: float | None
    """Of the newest attempt, so far."""
    runtime_s: float | None
    """As it was measured, once it has ended."""
    predicted_s: float | None
    predicted_low_s: float | None
    predicted_high_s: float | None
    predicted_basis: str | None
    done_frac: float | None
    remaining_s: float | None
    remaining_low_s: float | None
    """With `remaining_high_s` an interval of 80 %."""
    remaining_high_s: float | None
    remaining_cost: float | None
    progress_text: str | None
    """How far it is, in words that say what is not known."""
    url: str
    """Its page."""


class WarningShown(TypedDict):
    """A silent failure, as docs/policy.md explains them."""

    attempt: int
    kind: Silent
    gpu: str
    measured: float
    """A share, or bytes for `over_grant`."""
    limit: float
    text: str
    began_at: At
    ended_at: At | None
    stopped_at: At | None
    """When the policy ended the attempt for it; null where it did not."""


class Advised(StartTold):
    """The smallest change of one field with which it would start notably earlier."""

    field: str
    value: Any
    text: str
    expected_end_at: At | None


class QueueLine(Waiting):
    """A run that waits, or the first member of an array that does."""

    array_waiting: NotRequired[int | None]
    """Members of its array that have still to start."""


class RunShown(RunLine, total=False):
    """A run; before the ledger knows it, with the keys of `headway runs` alone."""

    job: dict[str, Any]
    session: str | None
    """Address of its page, while it runs."""
    code: Code | None
    steps: list[StepShown]
    demand: DemandShown | None
    lease: LeaseShown | None
    predicted: Predicted
    measured: Quantities
    progress: ProgressShown
    outputs: list[str] | None
    """Null where they are on another node."""
    data: list[Staging]
    """How its data sets came to its nodes."""
    stored: list[StoredShown]
    gang: str | None
    """Of a part: the run that leads."""
    ranks: list[RankShown]
    warnings: list[WarningShown]
    attempts: list[AttemptShown]
    waiting: Waiting | None
    profile: ProfileShown


class Submitted(TypedDict):
    """A run that was submitted."""

    run_id: str
    name: str
    image: str
    url: str
    session: str | None
    """Its page, of a session."""


class ArraySubmitted(TypedDict):
    """An array that was submitted."""

    array_id: str
    name: str
    size: int
    image: str


class SizeTold(TypedDict):
    """A size that the job leaves open."""

    size: str
    runtime_low_s: float | None
    runtime_s: float | None
    runtime_high_s: float | None
    cost: float | None


class Rehearsed(StartTold):
    """What would become of a job.

    Of one with a range, needs and `predicted` are of the size that it would start with, else the
    smallest.
    """

    image: str
    position: int | None
    reason: str
    promised_start_at: At | None
    needs_host_memory_bytes: int
    host_memory_basis: Basis
    host_memory_why: str
    needs_gpus: int
    needs_gpu_memory_bytes: int
    gpu_memory_basis: Basis
    needs_whole_gpus: bool
    runtime_known: bool
    """False: `predicted.runtime_s` and the cost are guesses."""
    predicted: Predicted
    sizes: list[SizeTold]
    changes: list[Advised]


class WhyTold(StartTold):
    """Why a run waits. Where `position` and the times are null, `reason` says why."""

    run_id: str
    name: str
    resource: Resource | None
    reason: str
    position: int | None
    promised_start_at: At | None
    holders: list[HolderShown]
    ahead: list[AheadShown]
    changes: list[Advised]


class ArrayShown(ArrayLine):
    """An array with its members."""

    members: list[Member]


class Cancelled(TypedDict):
    """A run that was ended."""

    run_id: str
    name: str
    over: bool
    """It had ended before."""
    told: bool
    """Whether Prefect knows."""
    state: str
    message: str


class ArrayCancelled(ArrayLine):
    """An array that was ended."""

    ended_now: int
    """Members that this ended."""


class Retried(TypedDict):
    """A run that is tried again."""

    run_id: str
    name: str
    state: str
    attempt: int


class ArrayRetried(TypedDict):
    """An array whose members are tried again."""

    array_id: str
    name: str
    retried: int
    follow: int
    """Members that had not become runs when it was cancelled, and do now."""
    not_yet: int
    """Those whose end Prefect does not know yet."""
    next: int | None


class Log(TypedDict):
    """What a run's program wrote."""

    run_id: str
    log: str


class UploadShown(TypedDict):
    """A data set that somebody has put."""

    name: str
    owner: str
    is_directory: bool
    files: int
    size_bytes: int
    put_at: At
    used_at: At
    uri: str
    missing: NotRequired[list[str]]
    """Of `data put`: always empty."""


class OutputShown(TypedDict):
    """A file of a run's outputs."""

    path: str
    href: str
    bytes: int
    modified: float
    """Seconds since 1970."""
    version: str
    sha256: str | None
    was_here: NotRequired[bool]
    """With DIR, as `error`: it was fetched before."""
    error: NotRequired[str]


class Elsewhere(TypedDict):
    """An attempt on another node."""

    attempt: int
    node: str


class Outputs(TypedDict):
    """What a run wrote to its outputs."""

    run_id: str
    complete: bool
    """False: there is more than is listed."""
    left_out: int
    """Links and the like."""
    not_stored: list[OutputShown]
    """Sparse files, which were not brought to the store."""
    elsewhere: list[Elsewhere]
    files: list[OutputShown]
    folder: NotRequired[str]
    """With DIR."""


class PrunedRun(TypedDict):
    """A run whose folder may go."""

    run_id: str
    name: str
    ended_at: At
    size_bytes: int
    why: str
    removed: bool


class Pruned(TypedDict):
    """What `prune` removes."""

    runs: list[PrunedRun]
    size_bytes: int


class PrunedSet(TypedDict):
    """A data set that may go."""

    team: str
    name: str
    owner: str
    size_bytes: int
    used_at: At
    removed: bool


class PrunedData(TypedDict):
    """What `prune --data` removes."""

    data: list[PrunedSet]
    size_bytes: int


class UsageSums(TypedDict):
    """Sums of all rows."""

    runs: int
    gpu_hours: float
    idle_gpu_hours: float
    """Held before the program ran and after it, and while it ran without a kernel on the GPU."""
    unmeasured_gpu_hours: float
    """Of programs whose use of the GPU is not known: among `gpu_hours`, not idle."""
    gib_hours: float
    """Of host memory."""
    unused_gib_hours: float
    cpu_hours: float
    unused_cpu_hours: float
    cost: float
    idle_cost: float
    """Of GPUs that were held and idle."""


class UsageRow(UsageSums):
    """What a user of a team held."""

    team: str
    user: str


class UsageShown(TypedDict):
    """What was held in a month."""

    since: At
    until: At
    rows: list[UsageRow]
    total: UsageSums


class TopRun(TypedDict):
    """A run that runs."""

    run_id: str
    name: str
    owner: str
    team: str
    node: str | None
    array_id: str | None
    elapsed_s: float | None
    done_frac: float | None
    remaining_s: float | None
    progress_text: str | None
    warnings: list[WarningShown]


class Top(TypedDict):
    """The site at a glance."""

    nodes: list[NodeShown]
    runs: list[TopRun]
    arrays: list[ArrayLine]
    queue: list[QueueLine]


class EstimatedWay(TypedDict):
    """A way to run a job."""

    gpu_type: str
    """`cpu` where no GPU is used."""
    node_count: int
    gpus: int
    """In all, over all nodes."""
    gpu_memory_interval_bytes: tuple[int, int] | None
    """What each GPU holds lies in it four times of five; null where it is no guess."""
    price_per_hour: float
    wait_s: float | None
    pareto: bool
    """No other is both as fast and as cheap."""
    within: bool
    """Keeps to budget, deadline, and the sizes that the job allows."""
    chosen: bool
    speed_up: float | None
    """Over one such GPU."""
    efficiency_frac: float | None
    runtime_s: float | None
    runtime_low_s: float | None
    runtime_high_s: float | None
    cost: float | None
    basis: str
    runtime_known: bool
    """False: time and cost are guesses."""
    nodes: list[str]
    """Those that could take it."""
    host_memory_bytes: int
    gpu_memory_bytes: int
    whole_gpus: bool
    excess: float | None
    """How many times what it may cost or take, the larger; null where that cannot be told."""


class Estimated(TypedDict):
    """The ways to run a job, the best first."""

    options: list[EstimatedWay]


class ScoredWeek(TypedDict):
    """How far off predicted times were in a week."""

    week: str
    runs: int
    mean_error_frac: float
    median_error_frac: float
    within_frac: float


class ScoredRun(TypedDict):
    """A run that was predicted badly."""

    run_id: str
    name: str
    owner: str | None
    runtime_s: float
    predicted_s: float
    error_frac: float
    predicted_basis: str


class Scored(TypedDict):
    """How well times were predicted."""

    weeks: list[ScoredWeek]
    worst: list[ScoredRun]


class Evaluated(TypedDict, total=False):
    """How the candidates did; `{}` before the first time."""

    rows: int
    """Runs that took part."""
    of: int
    """Runs that could have."""
    unit: Unit
    """What was measured of them."""
    champions: dict[str, str]
    """By what was new in a run."""
    table: list[dict[str, Any]]
    """A row of each kind and candidate, with its errors, as fractions."""
    calibration: list[dict[str, Any]]
    """Of each kind, the share of runs below each quantile that its champion told."""
    worst: list[dict[str, Any]]
    """The runs that were predicted worst."""
    took_s: float
    changed: list[str]
    words: str


class StartsSaid(TypedDict):
    """How well starts were said."""

    said: str
    """When."""
    starts: int
    """That have come since."""
    coverage_frac: float
    """Within their 80 % interval."""
    waited: int
    """Of runs that waited a minute or more, and …"""
    median_error_frac: float | None
    """… how far off they were, by the wait."""


class Version(TypedDict):
    """A version of the estimators."""

    version: int
    file: str
    in_use: bool


class Imported(TypedDict):
    """What became of a trace file."""

    imported: int
    already_known: int
    left_out: list[str]
    """Why, of each row."""
    metrics: list[str]
    dropped_columns: list[str]
    notices: list[str]


class PointShown(TypedDict):
    """What a line of the log says."""

    t_s: float | None
    """Null: its lines do not say when."""
    iteration: int | None
    epoch: float | None
    total: int | None
    """Iterations in all; of epochs where `iteration` is null."""
    metrics: dict[str, float]


class Parsed(TypedDict):
    """What a log says."""

    points: list[PointShown]
    format: str | None
    """Null: none that is known."""


class ReplayStarts(TypedDict):
    """How well starts were said in a replay."""

    starts: int
    coverage_frac: float
    waited: int
    median_error_frac: float | None


class ReplayGroup(TypedDict):
    """Waits of a part of the jobs."""

    gpus: NotRequired[int]
    """One of `gpus`, `user` and `team` says which part."""
    user: NotRequired[str]
    team: NotRequired[str]
    jobs: int
    mean_wait_s: float
    max_wait_s: float
    first_come_wait_s: NotRequired[float]
    """Of a team: if it had its share of the GPUs for itself."""


class Replayed(TypedDict):
    """What a policy did with the jobs of a trace."""

    policy: str
    estimates: str
    sharing: str
    jobs: int
    mean_wait_s: float
    median_wait_s: float
    p95_wait_s: float
    max_wait_s: float
    mean_completion_s: float
    """Submission to end."""
    mean_bounded_slowdown: float
    """Completion by the runtime alone, which counts as 10 s at least; 1 at least."""
    utilisation_frac: float
    makespan_s: float
    mean_stretch: float
    """Actual runtime by that alone."""
    promises: int
    promises_broken: int
    """By more than a minute."""
    latest_s: float
    starts: ReplayStarts | None
    """With `--starts`."""
    by_gpus: list[ReplayGroup]
    by_user: list[ReplayGroup]
    by_team: list[ReplayGroup]


class Login(TypedDict):
    """How a machine joins."""

    node: str
    server: str
    ledger: str
    """The address with the login, which is shown this once."""


class Joined(TypedDict):
    """A machine that has joined."""

    node: str
    pool: str
    server: str


class NodeSet(TypedDict):
    """A node that takes runs again, or no more."""

    node: str
    state: str
    reason: str


class GpuReset(TypedDict):
    """A GPU that takes runs again."""

    node: str
    gpu: str
    index: int


class NodeRemoved(TypedDict):
    """A node that was removed."""

    node: str
    runs: list[Removed]


class Token(TypedDict):
    """A token, never itself."""

    token_id: int
    user: str
    team: str
    scopes: list[str]
    state: str
    """`valid`, `expired` or `revoked`."""
    made_at: At
    expires_at: At
    revoked_at: At | None


class NewToken(Token):
    """A token that was made."""

    token: str
    """Shown this once."""


class Revoked(TypedDict):
    """Tokens that were revoked."""

    user: str
    revoked: list[int]
    """Their numbers."""


Setting = TypedDict("Setting", {"setting": str, "value": Any, "from": str, "changed": bool})
Setting.__doc__ = "A setting; `from` is default, config.yaml, environment or block."


class ConfigChecked(TypedDict):
    """What a configuration file says."""

    file: str
    errors: list[str]
    changes: list[ConfigChange]
    not_known: list[str]


class Up(TypedDict):
    """A site that is up."""

    url: str
    gateway: str | None
    started: list[str]
    """What did not run before."""
    registered: bool
    node: str
    auth_file: str
    prefect: str
    """How Prefect's own commands are typed."""
    runtime: str
    weaknesses: list[str]


class Disagreement(TypedDict):
    """Something that does not agree."""

    kind: Kind
    subject: str
    what: str
    since: At | None
    mends: str
    """What mends it, or who has to."""


class Invariants(TypedDict):
    """Whether ledger, node and Prefect agree."""

    broken: list[Disagreement]
    under_way: list[Disagreement]
    """Too young to be called broken."""
    unknown: list[str]
    """What could not be read."""
    elsewhere: list[str]
    """Nodes that have to be asked there."""


class Report(TypedDict):
    """A bug report."""

    file: str
    holds: list[str]


class Certificate(TypedDict):
    """The gateway's certificate."""

    fingerprint: str
    names: list[str]
    expires_at: At
    file: str


class EngineAdded(TypedDict):
    """What an engine has; `work_pools` are the site's, by its own names."""

    version: str
    pools: list[EnginePool]
    max_array: int
    remembers_s: float
    lacks: list[str]
    engine: str
    work_pools: dict[str, str]


class Load(TypedDict):
    """What was in use in the last hour."""

    period_s: float
    nodes: dict[str, dict[str, list[tuple[Any, ...]]]]
    """Of each node, by `host` and the uuids of its GPUs: time and share of it in use, by turns."""


class Curve(TypedDict):
    """A metric of a member."""

    index: int
    run_id: str
    parameters: dict[str, Any]
    points: list[tuple[float, ...]]
    """Seconds and value, about 60 times."""


class Curves(TypedDict):
    """A metric of an array's members."""

    metric: str
    metrics: list[str]
    """Names of all there are."""
    members: list[Curve]
    """Of those that have it, 48 at most."""
    left_out: int


MADE = Submitted | ArraySubmitted
ANSWERS: dict[str, Any] = {
    "submit": MADE, "submit --dry-run": Rehearsed, "submit --watch": RunShown | ArrayLine,
    "run": RunShown | ArrayLine, "run --detach": MADE,
    "session": RunShown, "session --detach": Submitted,
    "rerun": Submitted, "rerun --watch": RunShown, "demo": RunShown,
    "runs": list[RunLine | ArrayLine], "show": RunShown | ArrayShown, "results": ArrayShown,
    "logs": Log, "cancel": Cancelled | ArrayCancelled, "retry": Retried | ArrayRetried,
    "outputs": Outputs, "profile": ProfileShown, "queue": list[QueueLine], "why": WhyTold,
    "nodes": list[NodeShown], "top": Top, "usage": UsageShown, "estimate": Estimated,
    "progress parse": Parsed,
    "data put": UploadShown, "data ls": list[UploadShown], "data rm": list[UploadShown],
    "prune": Pruned, "prune --data": PrunedData,
    "up": Up, "down": Halted, "doctor": list[Checked], "doctor --invariants": Invariants,
    "doctor --report": Report, "certificate": Certificate,
    "config show": list[Setting], "config check": ConfigChecked,
    "config apply": list[ConfigChange],
    "node add": Login, "node join": Joined, "node drain": NodeSet, "node resume": NodeSet,
    "node gpu reset-ok": GpuReset, "node remove": NodeRemoved,
    "user add": NewToken, "user list": list[Token], "user revoke": Revoked,
    "audit": list[AuditEntry],
    "engine add": EngineAdded, "engine list": list[EnginePoolRecord],
    "estimators": Scored, "estimators scores": Evaluated, "estimators evaluate": Evaluated,
    "estimators evaluate --starts": list[StartsSaid], "estimators versions": list[Version],
    "traces import": Imported, "replay": list[Replayed],
    "GET /v1/load": Load, "GET /v1/arrays/{array}/curves": Curves,
}  # fmt: skip
"""By command, with an option that changes what it prints; and two of the gateway alone."""


def shape_of(words: Sequence[str]) -> Any:
    """The shape of what `headway WORDS --json` prints."""
    command = next(name for n in (3, 2, 1) if (name := " ".join(words[:n])) in ANSWERS)
    with_option = (f"{command} {'--detach' if word == '-d' else word}" for word in words)
    return next((ANSWERS[each] for each in with_option if each in ANSWERS), ANSWERS[command])


def keys(shape: Any) -> dict[str, Any]:
    """Types of the keys of a TypedDict, a dataclass or a named tuple; empty for anything else."""
    has = (
        isinstance(shape, type) and get_origin(shape) is None and hasattr(shape, "__annotations__")
    )
    plain = not has or issubclass(shape, enum.Enum)
    return {} if plain else get_type_hints(shape)


def misfits(shape: Any, value: Any, at: str = "") -> list[str]:
    """Where *value*, as JSON has it, is not of *shape*."""
    kind, of = get_origin(shape) or shape, get_args(shape)
    if kind in (Union, UnionType):
        found = [misfits(each, value, at) for each in of if (each is NoneType) == (value is None)]
        return min(found, key=len, default=[f"{at}: null"])
    below: list[tuple[Any, Any, str]] = []
    wrong: list[str] = []
    if (of_key := keys(shape)) and isinstance(value, dict):
        wrong = [f"{at}.{key}: not told of {shape.__name__}" for key in value.keys() - of_key]
        needed = getattr(shape, "__required_keys__", of_key)
        wrong += [f"{at}.{key}: missing" for key in needed if key not in value]
        below = [(of_key[key], value[key], f"{at}.{key}") for key in of_key.keys() & value]
    elif kind in (list, tuple) and isinstance(value, list):
        below = [(of[0], it, f"{at}[{number}]") for number, it in enumerate(value)]
    elif kind in (dict, Mapping) and isinstance(value, dict):
        below = [(of[1], it, f"{at}[{key}]") for key, it in value.items()]
    elif not _fits(kind, value):
        wrong = [f"{at}: {value!r} is no {kind}"]
    return wrong + [said for each in below for said in misfits(*each)]


def _fits(kind: Any, value: object) -> bool:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return value in [each.value for each in kind]
    if kind is datetime:
        return isinstance(value, str) and bool(datetime.fromisoformat(value))
    return kind is Any or type(value) in ({int, float} if kind is float else {kind})


def checked(words: Sequence[str], printed: str) -> Any:
    """What `headway WORDS` has *printed*, which is of its shape."""
    document = json.loads(printed)
    wrong = misfits(shape_of(words), document)
    assert not wrong, f"headway {' '.join(words)}: {wrong}; see benchmarks/answers.py"
    return document


def asked(site: LiveSite, folder: Path) -> dict[str, Any]:
    """What many commands print on *site*, by command; files go to *folder*.

    A run has ended then, another runs, a third and an array wait, and all of them are ended.
    """
    found: dict[str, Any] = {}

    def ask(*words: str) -> Any:
        command = " ".join(words[: next((n for n in (3, 2) if " ".join(words[:n]) in ANSWERS), 1)])
        option = next((f"{command} {word}" for word in words if f"{command} {word}" in ANSWERS), "")
        document = site.json(*words)
        found.setdefault(option or command, document)
        return document

    job, log, trace = folder / "job.json", folder / "train.log", folder / "jobs.csv"
    config = folder / "new.yaml"
    config.write_text("queue: {window: 32}\n")
    job.write_text(json.dumps(sleeper(8, name="train")))
    log.write_text("epoch 1/3 loss: 0.5\nepoch 2/3 loss: 0.25\n")
    trace.write_text(
        "job_id,team,submit_s,duration_s,gpus,gpu_memory_bytes,gpu_util_frac\n"
        + "".join(f"{n},vision,{n},60,1,1000000,0.5\n" for n in range(4))
    )
    ask("submit", str(job), "--dry-run")
    run = ask("submit", str(job))["run_id"]
    site.until(run, "Completed")
    cpus = site.json("nodes")[0]["cpus"]
    most = ("--set", f"resources.cpus={cpus - 0.5}", "--set", 'command=["sleep", "600"]')
    long = site.json("submit", str(job), "--set", "name=long", *most)["run_id"]
    site.until(long, "Running")
    ask("submit", str(job), "--set", "name=next", "--set", "resources.cpus=1")
    sweep = site.json("submit", str(job), "--set", "name=sweep", "--array", "seed=1..3")
    wait_for(lambda: {each["name"] for each in site.json("queue")} >= {"next"}, lambda: "no queue")
    for words in (
        ("runs",), ("show", run), ("logs", run), ("outputs", run), ("profile", long), ("queue",),
        ("why", "next"), ("nodes",), ("top",), ("usage",), ("estimate", str(job)),
        ("results", sweep["array_id"]), ("audit",), ("up",), ("doctor",),
        ("doctor", "--report", str(folder / "report.tar.gz")), ("doctor", "--invariants"),
        ("config", "show"), ("config", "check", str(config)), ("config", "apply"),
        ("engine", "list"),
        ("estimators",), ("estimators", "scores"), ("estimators", "versions"),
        ("estimators", "evaluate", "--starts"), ("progress", "parse", str(log)),
        ("data", "put", str(log), "--name", "a-log"), ("data", "ls"),
        ("prune", "--data", "--older-than", "0s", "--dry-run"), ("data", "rm", "a-log"),
        ("prune", "--older-than", "0s", "--dry-run"),
        ("node", "drain", site.env["HEADWAY_NODE"]), ("node", "resume", site.env["HEADWAY_NODE"]),
        ("user", "add", "ada", "--team", "vision"), ("user", "list"), ("user", "revoke", "ada"),
        ("replay", str(trace), "--nodes", "1", "--gpus", "1"), ("cancel", "next"),
        ("cancel", sweep["array_id"]), ("cancel", long), ("retry", run), ("rerun", run),
    ):  # fmt: skip
        ask(*words)
    return found


def shortened(value: Any) -> Any:
    """*value* as an example: the first of each list, and the beginning of a long text."""
    match value:
        case list():
            return [shortened(each) for each in value[:1]]
        case dict():
            shown = islice(value.items(), 3 if "command" in value else None)  # of a job
            return {key: shortened(each) for key, each in shown}
        case str() if len(value) > MOST:
            return value[:MOST] + " …"
    return value


def main() -> None:
    """Ask a site of its own, and keep what it printed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with live_site(folder / "site", "process", HEADWAY_NODE="node-a") as site:
            text = json.dumps(shortened(asked(site, folder)), indent=1, ensure_ascii=False)
    EXAMPLES.write_text(text.replace(name, "/srv") + "\n")


if __name__ == "__main__":
    main()
