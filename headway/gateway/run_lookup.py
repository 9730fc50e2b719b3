"""Runs by what people call them, as far as who asks may see them.

Prefect says in which state a run is, the ledger everything else. Where Prefect is away the
ledger's word on the state is given instead.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from headway.errors import InvalidInput, NotAllowed, RunUnknown, SiteRefused, SiteUnreachable
from headway.ledger.records import RunRecord
from headway.model.access import Caller, Scope
from headway.model.array import member_of
from headway.model.run import RunState
from headway.prefect.client import FINAL, ListedRun, PrefectServer
from headway.site import Site
from headway.views.run_document import as_listed

Found = tuple[ListedRun, RunRecord | None]
_LOOKED_AT = 1000
"""Newest runs of a team among which those of a filter are looked for."""
_LATELY = 200
"""Newest runs of Prefect among which one is looked for that no worker has seen yet."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which runs are listed."""

    name: str = ""
    """What their names contain, in any case."""
    states: Sequence[str] = ()
    """Names of states of which they are in one; empty for any."""
    since: datetime | None = None
    owner: str | None = None
    members: bool = False
    """With members of arrays, each as a run; else none of them."""


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
    """The newest runs that *caller* sees and that are *wanted*, newest first."""
    if caller.may(Scope.OPERATE) and wanted.owner is None:  # whose a run is, the ledger says
        try:
            return _listed_by_prefect(site, server, wanted, limit)
        except SiteRefused:
            raise
        except SiteUnreachable:
            pass
    return _listed_by_ledger(site, server, caller, wanted, limit)


def _listed_by_prefect(
    site: Site, server: PrefectServer, wanted: Filter, limit: int
) -> list[Found]:
    """With those that no worker has seen yet."""
    seen = server.runs(
        limit,
        name=wanted.name,
        states=wanted.states,
        since=wanted.since,
        keep=lambda run: wanted.members or member_of(run.key) is None,
    )
    records = site.ledger.runs.of([run.run_id for run in seen])
    return [(run, records.get(run.run_id)) for run in seen]


def _listed_by_ledger(
    site: Site, server: PrefectServer, caller: Caller, wanted: Filter, limit: int
) -> list[Found]:
    most = limit if wanted == Filter(members=wanted.members) else _LOOKED_AT
    records = site.ledger.runs.all(limit=most, team=seen_team(caller), members=wanted.members)
    records = [each for each in records if each.gang_id is None and _may_be(each, wanted)]
    try:
        seen = server.these([each.run_id for each in records])
    except SiteUnreachable:
        seen = {}
    found: Iterable[Found] = ((seen.get(each.run_id) or as_listed(each), each) for each in records)
    if states := {name.lower() for name in wanted.states}:
        found = (run for run in found if run[0].state_name.lower() in states)
    return list(islice(found, limit))


def _may_be(record: RunRecord, wanted: Filter) -> bool:
    early = wanted.since is not None and record.submitted_at < wanted.since
    own = wanted.owner in (None, record.owner)
    return own and not early and wanted.name.lower() in record.name.lower()


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
