"""What the gateway answers about runs. A token sees its own team's runs, an operator's sees all."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, TypeAdapter

from headway.errors import InvalidInput, RunUnknown, SiteRefused, SiteUnreachable
from headway.gateway.door import Watcher
from headway.gateway.errors import NotAllowed
from headway.ledger.records import RunRecord
from headway.model.access import Caller, Scope
from headway.model.array import member_of
from headway.model.progress import ProgressPoint
from headway.model.run import ExitKind, RunState
from headway.prefect.client import PrefectServer
from headway.prefect.listed_run import FINAL, ListedRun
from headway.profile.text import profile_view
from headway.site import Site
from headway.views import run_document as documents
from headway.views.fields import fields
from headway.views.queue_document import waiting_of, why_view
from headway.views.run_document import is_over
from headway.views.run_history import history_of
from headway.views.run_report import run_report
from headway.views.site_snapshot import RunProgress, progress_of_runs, remaining_s_of

Found = tuple[ListedRun, RunRecord | None]
NO_NUL = r"^[^\x00]*$"
"""No database takes that character, not even in a question."""
_PAGE = 500
_LATELY = 200
"""Newest runs of Prefect among which one is looked for that no worker has seen yet."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which runs are listed."""

    name: str = ""
    """What their names contain, in any case."""
    states: frozenset[str] = frozenset()
    """Names of states of Prefect, in small letters, of which they are in one; empty for any."""
    since: datetime | None = None
    owner: str | None = None
    members: bool = False
    """With members of arrays, each as a run; else none of them."""

    def has(self, run: ListedRun) -> bool:
        """Whether *run*, which only Prefect knows, is one of them."""
        return (
            self.name.lower() in run.name.lower()
            and (not self.states or run.state_name.lower() in self.states)
            and (self.since is None or _made_at(run) >= self.since)
            and (self.members or member_of(run.key) is None)
        )


def seen_team(caller: Caller) -> str | None:
    """The team whose runs alone *caller* sees; None where it sees all."""
    return None if caller.may(Scope.OPERATE) else caller.team


def find_run(site: Site, server: PrefectServer, caller: Caller, text: str) -> Found:
    """The run called *text*: its id, the beginning of it, or its name.

    Of several of one name it is the caller's own, else the newest.

    Raises:
        RunUnknown: There is none that the caller sees.
        SiteUnreachable: The ledger has none, and only Prefect could tell.
    """
    try:
        record = site.ledger.runs.find(text, team=seen_team(caller), owner=caller.user)
    except RunUnknown:
        return _of_prefect_alone(server, caller, text), None
    return _standing(server, record), record


def find_waiting(site: Site, caller: Caller, text: str) -> RunRecord:
    """The run called *text*, or the first member that waits of the array called so.

    Raises:
        RunUnknown: There is neither that the caller sees.
        InvalidInput: It is an array of which no member waits.
    """
    team = seen_team(caller)
    try:
        return site.ledger.runs.find(text, team=team, owner=caller.user)
    except RunUnknown:
        array = site.ledger.arrays.find(text, team=team, owner=caller.user)
    waiting = site.ledger.arrays.members(array.array_id, [RunState.WAITING])
    if not waiting:
        allowed = "it is an array of which no member waits now; `headway show` lists them"
        raise InvalidInput("run", array.name, allowed)
    return waiting[0]


def find_to_cancel(site: Site, server: PrefectServer, caller: Caller, text: str) -> Found:
    """The same, but of several of one name the newest that has not ended, if there is one.

    Of a run that goes on in the ledger Prefect is not asked: it may be away.
    """
    try:
        record = site.ledger.runs.find(
            text, still_going=True, team=seen_team(caller), owner=caller.user
        )
    except RunUnknown:
        return _of_prefect_alone(server, caller, text), None
    if record.state is not RunState.ENDED:
        return documents.as_listed(record), record
    try:  # perhaps a later one goes on that no worker has seen yet
        later = _of_prefect_alone(server, caller, text)
    except (RunUnknown, SiteUnreachable):
        return _standing(server, record), record
    return (later, None) if later.state_type not in FINAL else (_standing(server, record), record)


def check_own(caller: Caller, run: Found, text: str) -> None:
    """Let *caller* change a run, which was found by *text*.

    Raises:
        NotAllowed: It is a team mate's.
        InvalidInput: An operator gave the name of another one's.
    """
    seen, record = run
    owner = record.owner if record is not None else ""
    check_owner(caller, owner, f"run {seen.name}")
    refuse_name(caller, owner, text, seen.run_id)


def refuse_name(caller: Caller, owner: str, text: str, own_id: str) -> None:
    """Let an operator change by its id alone what is another one's: many things have one name.

    Raises:
        InvalidInput: *text* is the name of what has the id *own_id*.
    """
    if owner not in {"", caller.user} and not own_id.startswith(text):
        allowed = f"you have none of that name; this one is {owner}'s: give its id, {own_id[:8]}"
        raise InvalidInput("run", text, allowed)


def check_owner(caller: Caller, owner: str, what: str) -> None:
    """Let *caller* change what is *owner*'s: a run, an array or a data set, called *what*.

    Raises:
        NotAllowed: It is a team mate's.
    """
    if owner != caller.user and not caller.may(Scope.OPERATE):
        raise NotAllowed(f"{what} is {owner or 'nobody'}'s; ask its owner")


def list_runs(
    site: Site, server: PrefectServer, caller: Caller, wanted: Filter, limit: int
) -> list[Found]:
    """The newest runs that *caller* sees and that are *wanted*, newest first.

    Operators also see those that no worker has seen yet: whose a run is, the ledger says. Prefect
    is asked for these first, so that a run which a worker takes in meanwhile is not left out.
    """
    unseen: list[Found] = []
    if caller.may(Scope.OPERATE) and wanted.owner is None:
        unseen = _of_no_worker(site, server, wanted)
    found = list(islice(_of_ledger(site, server, caller, wanted, limit), limit))
    listed = {seen.run_id: (seen, record) for seen, record in (*unseen, *found)}
    return sorted(listed.values(), key=_submitted_at, reverse=True)[:limit]


def _submitted_at(run: Found) -> datetime:
    seen, record = run
    return record.submitted_at if record is not None else _made_at(seen)


def _made_at(run: ListedRun) -> datetime:
    """When it was made; of one that the server cannot send, as if that were just now."""
    return datetime.fromisoformat(run.created_at) if run.created_at else _NOW


_NOW = datetime.max.replace(tzinfo=UTC)


def _of_no_worker(site: Site, server: PrefectServer, wanted: Filter) -> list[Found]:
    try:
        newest = server.runs(_LATELY)
    except SiteRefused:
        raise
    except SiteUnreachable:
        return []
    known = site.ledger.runs.of([run.run_id for run in newest])
    return [(run, None) for run in newest if run.run_id not in known and wanted.has(run)]


def _of_ledger(
    site: Site, server: PrefectServer, caller: Caller, wanted: Filter, limit: int
) -> Iterator[Found]:
    """All that the ledger has, a page at a time; Prefect says in which state each is."""
    size, last = (_PAGE if wanted.states else limit), None
    kinds = [kind for kind in ExitKind if documents.end_name(kind).lower() in wanted.states]
    ends = kinds if wanted.states else None
    while True:
        page = site.ledger.runs.listed(
            size,
            after=last,
            team=seen_team(caller),
            owner=wanted.owner,
            name=wanted.name,
            since=wanted.since,
            members=wanted.members,
            ends=ends,
        )
        try:
            seen = server.these([each.run_id for each in page])
        except SiteUnreachable:
            seen = {}
        for record in page:
            run = seen.get(record.run_id) or documents.as_listed(record)
            if not wanted.states or run.state_name.lower() in wanted.states:
                yield run, record
        if len(page) < size:
            return
        last = page[-1]


def _standing(server: PrefectServer, record: RunRecord) -> ListedRun:
    """The run as Prefect has it; as the ledger does where Prefect cannot, or can no more."""
    try:
        return server.run(record.run_id)
    except (SiteUnreachable, RunUnknown):
        return documents.as_listed(record)


def _of_prefect_alone(server: PrefectServer, caller: Caller, text: str) -> ListedRun:
    """A run that no worker has seen yet. It came by Prefect's own API, so only operators see it."""
    if text and caller.may(Scope.OPERATE):  # each id begins with nothing
        for run in server.runs(_LATELY):
            if run.name == text or run.run_id.startswith(text):
                return run
    raise RunUnknown(text)


def details(site: Site, seen: ListedRun, record: RunRecord | None) -> dict[str, Any]:
    """Everything about one run, as `headway show --json` prints it."""
    if record is None:
        return documents.run_view(seen, None)
    (progress,) = progress_of_runs(site, [record])
    history = history_of(site, record)
    known = documents.run_view(seen, record, progress)
    known |= documents.run_details(history, remaining_s_of(progress))
    if record.state is RunState.WAITING and not is_over(seen):
        known["waiting"] = waiting_of(site, record)
    if history.profile is not None:
        known["profile"] = profile_view(history.profile)
    return known


Limit = Annotated[int, Query(ge=1, le=10_000)]
Name = Annotated[
    str, Query(max_length=200, pattern=NO_NUL, description="What their names contain.")
]
States = Annotated[list[str], Query(max_length=20, description="Names of states of Prefect.")]
Since = Annotated[AwareDatetime | None, Query(description="When they were made, at the earliest.")]
Mine = Annotated[bool, Query(description="Only those of the token's user.")]
Members = Annotated[bool, Query(description="Members of arrays, too, each as a run.")]

_ROW = TypeAdapter(dict[str, Any])
_PLACE = frozenset(
    {
        *("position", "attempt", "resource", "needs_host_memory_bytes", "needs_gpus"),
        *("starts_now", "earliest_start_at", "expected_start_at", "latest_start_at"),
        *("promised_start_at", "planned_at", "predicted_runtime_s"),
    }
)
"""What is told of a place in the queue to other teams: neither whose it is nor any words."""


def of_caller(view: dict[str, Any], caller: Caller) -> dict[str, Any]:
    """A place in the queue; where it is another team's, without whose it is and what it says."""
    if caller.sees(view["team"]):
        return view
    return {key: value if key in _PLACE else None for key, value in view.items()}


def runs_of(site: Site, server: PrefectServer) -> APIRouter:
    """The routes about runs of *site*, whose Prefect is *server*, that change nothing."""
    router = APIRouter()

    @router.get("/runs", response_model=list[dict[str, Any]])
    def runs(
        caller: Watcher,
        limit: Limit = 100,
        name: Name = "",
        state: States = [],  # noqa: B006 - FastAPI copies it
        since: Since = None,
        *,
        mine: Mine = False,
        members: Members = False,
    ) -> Response:
        """The newest runs that the token sees, newest first."""
        states = frozenset(each.lower() for each in state)
        wanted = Filter(name, states, since, caller.user if mine else None, members)
        found = list_runs(site, server, caller, wanted, limit)
        far = _progress(site, [record for _, record in found if record is not None])
        # One by one and here: as a whole they would keep all others of this process waiting.
        rows = b",".join(_ROW.dump_json(_view(each, far)) for each in found)
        return Response(b"[%s]" % rows, media_type="application/json")

    @router.get("/runs/{run}")
    def run(caller: Watcher, run: str) -> dict[str, Any]:
        """One run by id or name: job, steps, demand, lease, prediction and measurement."""
        seen, record = find_run(site, server, caller, run)
        known = details(site, seen, record)
        if known.get("waiting"):
            known["waiting"] = of_caller(known["waiting"], caller)
        return known

    @router.get("/runs/{run}/report")
    def report(caller: Watcher, run: str) -> list[dict[str, Any]]:
        """The sections that the run's page shows, for people: tables with a title."""
        _, record = find_run(site, server, caller, run)
        sections = () if record is None else run_report(history_of(site, record))
        return [fields(section, "title", "columns", "rows") for section in sections]

    @router.get("/runs/{run}/why")
    def why_it_waits(caller: Watcher, run: str) -> dict[str, Any]:
        """Why a run waits: what is scarce, who has it, who is ahead, and what would help.

        Of an array it is its first member that waits. Runs of other teams have no names here.
        """
        return why_view(site, find_waiting(site, caller, run), sees=caller.sees)

    @router.get("/runs/{run}/standing")
    def standing(caller: Watcher, run: str) -> dict[str, Any]:
        """How one run stands, as somebody asks who follows it: little is read for it."""
        found = find_run(site, server, caller, run)
        seen, record = found
        far = _progress(site, [] if record is None else [record])
        view = _view(found, far) | {"message": seen.message, "over": is_over(seen)}
        if record is None:
            return view | {"step": None, "progress": None}
        return view | _at(site, record, far.get(record.run_id))

    @router.get("/runs/{run}/progress")
    def progress(caller: Watcher, run: str) -> dict[str, Any]:
        """Every progress point of the newest attempt, and the remaining time."""
        _, record = find_run(site, server, caller, run)
        if record is None:
            return {"run_id": run, "attempt": 1, **dict.fromkeys(_FAR), "points": []}
        points = site.ledger.progress.series(record.run_id, record.attempt)
        (progress,) = progress_of_runs(site, [record])
        return {
            **fields(record, "run_id", "attempt"),
            **fields(progress, *_FAR),
            "points": [fields(each, *ProgressPoint._fields) for each in points],
        }

    return router


_FAR = (
    "elapsed_s", "done_frac", "remaining_s", "remaining_low_s", "remaining_high_s", "progress_text",
)  # fmt: skip
_POINT = ("iteration", "epoch", "total", "metrics")


def _progress(site: Site, records: list[RunRecord]) -> dict[str, RunProgress]:
    return {each.record.run_id: each for each in progress_of_runs(site, records)}


def _view(found: Found, far: dict[str, RunProgress]) -> dict[str, Any]:
    seen, record = found
    return documents.run_view(seen, record, far.get(seen.run_id))


def _at(site: Site, record: RunRecord, known: RunProgress | None) -> dict[str, Any]:
    under_way = [s.name for s in site.ledger.steps.of_run(record.run_id) if s.ended_at is None]
    point = site.ledger.progress.latest(record.run_id)
    holds = record.state in (RunState.CLAIMED, RunState.RUNNING)
    # Between two steps of one whose program has run, and may have told epochs, nothing starts.
    between = "starting" if holds and record.started_at is None else None
    progress = None if point is None else fields(point, *_POINT)
    far = known.far if known is not None else None
    if progress is not None and far is not None and far.done_frac is not None:
        progress |= fields(far, "iteration", "epoch", "total")  # of the moment of its text
    return {
        "step": under_way[-1] if under_way else between,
        "progress": progress,
    }
