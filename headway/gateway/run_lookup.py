"""Runs by what people call them, as far as who asks may see them.

Prefect says in which state a run is, the ledger everything else. Where Prefect is away the
ledger's word on the state is given instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from headway.errors import InvalidInput, NotAllowed, RunUnknown, SiteRefused, SiteUnreachable
from headway.ledger.records import RunRecord
from headway.model.access import Caller, Scope
from headway.model.array import member_of
from headway.model.run import ExitKind, RunState
from headway.prefect.client import FINAL, ListedRun, PrefectServer
from headway.site import Site
from headway.views.run_document import as_listed, end_name

Found = tuple[ListedRun, RunRecord | None]
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
    """The run called *text*: its id, the beginning of it, or its name; of several the newest.

    Raises:
        RunUnknown: There is none that the caller sees.
        SiteUnreachable: The ledger has none, and only Prefect could tell.
    """
    try:
        record = site.ledger.runs.find(text, team=seen_team(caller))
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
        return site.ledger.runs.find(text, team=team)
    except RunUnknown:
        array = site.ledger.arrays.find(text, team=team)
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
        record = site.ledger.runs.find(text, still_going=True, team=seen_team(caller))
    except RunUnknown:
        return _of_prefect_alone(server, caller, text), None
    if record.state is not RunState.ENDED:
        return as_listed(record), record
    try:  # perhaps a later one goes on that no worker has seen yet
        later = _of_prefect_alone(server, caller, text)
    except (RunUnknown, SiteUnreachable):
        return _standing(server, record), record
    return (later, None) if later.state_type not in FINAL else (_standing(server, record), record)


def check_own(caller: Caller, run: Found) -> None:
    """Let *caller* change a run.

    Raises:
        NotAllowed: It is a team mate's.
    """
    seen, record = run
    check_owner(caller, record.owner if record is not None else "", f"run {seen.name}")


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
    return sorted(listed.values(), key=_handed_in_at, reverse=True)[:limit]


def _handed_in_at(run: Found) -> datetime:
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
    kinds = [kind for kind in ExitKind if end_name(kind).lower() in wanted.states]
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
            run = seen.get(record.run_id) or as_listed(record)
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
        return as_listed(record)


def _of_prefect_alone(server: PrefectServer, caller: Caller, text: str) -> ListedRun:
    """A run that no worker has seen yet. It came by Prefect's own API, so only operators see it."""
    if text and caller.may(Scope.OPERATE):  # each id begins with nothing
        for run in server.runs(_LATELY):
            if run.name == text or run.run_id.startswith(text):
                return run
    raise RunUnknown(text)
