"""What a node may do by its own login: the rows of what it runs, and nothing of others."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from sqlalchemy import Connection, text
from sqlmodel import select

from headway.errors import HeadwayError, LeaseLost, LedgerError, RunUnknown
from headway.ledger import Ledger
from headway.ledger.access_tables import NodeLoginRow
from headway.ledger.database import Database, open_engine
from headway.ledger.errors import LedgerRefused
from headway.model.access import Scope
from headway.model.lease import Demand, Lease
from headway.model.run import Exit, ExitKind, Measurement, RunState, StepState
from headway.units import GIB
from tests.support import postgresql as postgresql_support
from tests.support.leading import admit_in_term
from tests.support.on_ledger import enqueue, granted, join

GRANT_FOR_ITSELF = (
    "INSERT INTO lease (run_id, attempt, node, term, token, host_memory_bytes, cpus, granted_at,"
    " expires_at, gang_rank, disk_bytes, lent) SELECT 'waits', 1, 'here', term, 'x', 1, 1,"
    " CURRENT_TIMESTAMP, CURRENT_TIMESTAMP, 0, 0, false FROM leader"
)
OK = Exit(ExitKind.OK, 0, "done")


class Site(NamedTuple):
    """A ledger with the nodes here and there, a run on each, and one that waits."""

    ledger: Ledger
    """As its owner."""
    here: Ledger
    """As the node `here`."""
    lease: Lease
    """What `here` holds, of team a; `there` holds one of team b."""


@pytest.fixture
def site(ledger: Ledger) -> Iterator[Site]:
    for node, team in (("here", "a"), ("there", "b")):
        join(ledger, node)
        enqueue(ledger, f"on-{node}", team=team)
        lease = granted(ledger, f"on-{node}", node=node)
        ledger.runs.begin(lease.fence, container="c", runtime="process", ttl_s=60.0)
        sent = "INSERT INTO code_chunk VALUES (:team, :name, 4, 'code', CURRENT_TIMESTAMP)"
        execute(ledger, sent, team=team, name=f"chunk-{team}")
    enqueue(ledger, "waits", team="b")
    url = ledger.node_logins.add("here", actor="me")
    lease = ledger.leases.of_run("on-here")
    assert lease is not None
    yield Site(ledger, here := Ledger.open(url), lease)
    here.close()
    ledger.node_logins.remove("here")


def execute(ledger: Ledger, statement: str, **values: object) -> int:
    """Carry *statement* out; how many rows it has seen or changed."""
    with ledger._database.transaction() as session:
        done = session.connection().execute(text(statement), values)
        return len(done.all()) if done.returns_rows else done.rowcount


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT digest FROM access_token",
        "INSERT INTO access_token (digest) VALUES ('x')",
        "SELECT * FROM audit",
        "INSERT INTO audit (actor) VALUES ('x')",
        "DELETE FROM audit",
        "ALTER TABLE audit DISABLE TRIGGER ALL",
        "SELECT * FROM node_login",
        "UPDATE node_login SET node = 'there'",
        "SELECT * FROM submission",
        "UPDATE leader SET term = term + 1",
        "SELECT term FROM leader FOR SHARE",
        "UPDATE lease SET node = 'here'",
        "UPDATE lease SET term = term",
        "DELETE FROM lease",
        "UPDATE run SET team = 'b'",
        "UPDATE run SET job = '{}'",
        "UPDATE run SET node = 'here'",
        "UPDATE run SET told_end_at = CURRENT_TIMESTAMP",
        "UPDATE run SET suspended_at = NULL",
        "UPDATE run SET tag = 0",
        "UPDATE run SET promised_at = CURRENT_TIMESTAMP",
        "DELETE FROM run",
        "UPDATE code SET diff = ''",
        "DELETE FROM code_chunk",
        "DELETE FROM upload",
        "UPDATE job_array SET size = 1",
        "UPDATE trace SET team = 'a'",
        "DELETE FROM setting",
        "DELETE FROM team_uids",
        "ALTER TABLE run DISABLE ROW LEVEL SECURITY",
        "DROP TABLE audit",
        "DROP POLICY seen ON run",
        "CREATE TABLE mine (x int)",
        "CREATE TEMP TABLE node_login AS SELECT session_user::text AS role, 'there' AS node",
        "CREATE OR REPLACE FUNCTION login_node() RETURNS text LANGUAGE sql AS 'SELECT NULL'",
        "CREATE ROLE mine SUPERUSER",
        "SET SESSION AUTHORIZATION headway",
        "SET ROLE headway",
        "SET LOCAL session_replication_role = replica",
        "COPY run TO PROGRAM 'true'",
        "SELECT pg_read_file('PG_VERSION')",
        "INSERT INTO setting VALUES ('headway-line', '{}', CURRENT_TIMESTAMP)",
        "INSERT INTO setting VALUES ('speeds/node/here', '{}', CURRENT_TIMESTAMP)",
        "INSERT INTO node_key VALUES ('there', 'x')",
        GRANT_FOR_ITSELF,
        "INSERT INTO step SELECT 'on-there', 1, 'x', 'running', CURRENT_TIMESTAMP",
        "INSERT INTO staged VALUES ('there', 'k', 'u', 1, 's', CURRENT_TIMESTAMP)",
    ],
)
def test_it_is_refused(site: Site, statement: str) -> None:
    with pytest.raises(LedgerRefused):
        execute(site.here, statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE node SET pool = 'x' WHERE name = 'there'",
        "SELECT * FROM node_key WHERE node = 'there'",
        "SELECT * FROM lease WHERE node = 'there'",
        "UPDATE lease SET released_at = CURRENT_TIMESTAMP WHERE node = 'there'",
        "SELECT * FROM run WHERE run_id <> 'on-here'",
        "SELECT * FROM code_chunk WHERE team = 'b'",
        "SELECT * FROM attempt WHERE run_id <> 'on-here'",
        "SELECT * FROM telemetry WHERE node = 'there'",
        "UPDATE setting SET document = '{}' WHERE name = 'limits'",
    ],
)
def test_of_what_is_others_it_sees_and_changes_nothing(site: Site, statement: str) -> None:
    site.ledger.settings.put("limits", {"a": 1})
    assert execute(site.here, statement) == 0
    assert site.ledger.settings.get("limits") == {"a": 1}


def test_a_lease_is_neither_revived_nor_turned_to_another_run(site: Site) -> None:
    execute(
        site.ledger, "UPDATE run SET node = 'here' WHERE run_id = 'waits'"
    )  # as of an attempt before
    with pytest.raises(LedgerError, match="granted to another run"):
        execute(site.here, "UPDATE lease SET run_id = 'waits' WHERE node = 'here'")
    site.here.leases.release(site.lease.fence)
    with pytest.raises(LedgerError, match="was released"):
        execute(site.here, "UPDATE lease SET released_at = NULL")


def test_it_makes_no_token_and_learns_none(site: Site) -> None:
    with pytest.raises(LedgerRefused):
        site.here.access_tokens.add(
            "0" * 64, user="me", team="t", scopes=set(Scope), lifetime_s=60.0, actor="me"
        )
    with pytest.raises(LedgerRefused):
        site.here.access_tokens.all()
    site.here.access_tokens.keep_of_node("here", "1" * 64)
    made = site.ledger.access_tokens.valid("1" * 64)
    assert made is not None
    assert (made.user, made.scopes) == ("here", {Scope.NODE})
    with pytest.raises(LedgerRefused):
        site.here.access_tokens.keep_of_node("there", "2" * 64)
    own, others = site.here.nodes.get("here"), site.here.nodes.get("there")
    assert own is not None
    assert others is not None
    assert (own.worker_token, others.worker_token) == ("worker", "")
    seen_by_owner = site.ledger.nodes.get("there")
    assert seen_by_owner is not None
    assert seen_by_owner.worker_token == "worker"


def test_what_it_runs_it_carries_to_its_end(site: Site) -> None:
    here, fence = site.here, site.lease.fence
    here.nodes.register(here.nodes.all()[0].node, boot_id="boot", worker_token="anew")
    here.steps.started(fence, "train")
    assert here.renewals.renew(
        "here", "", containers={("on-here", 1)}, flows=(), ttl_s=60.0, expire=True
    ).renewed
    assert isinstance(here.leases.resize(fence, Demand(2 * GIB), reading=None, ttl_s=60.0), Lease)
    assert here.leases.grow(fence, 3 * GIB) == 3 * GIB
    here.staged.acquire("here", "key", "on-here")
    here.staged.record("here", "key", "/data", 1, "sha")
    assert here.staged.remove("here", "key") is False
    assert here.code.chunks("a", ["chunk-a", "chunk-b"]).keys() == {"chunk-a"}
    assert here.code.chunks("b", ["chunk-b"]) == {}
    here.runs.finish(fence, OK, Measurement(runtime_s=1.0))
    here.steps.ended(fence, "train", StepState.DONE)
    here.leases.release(fence)
    assert site.ledger.runs.told("on-here", 1)
    assert here.runs.get("on-here").state is RunState.ENDED
    assert here.code.chunks("a", ["chunk-a"]) == {}, "nothing of team a is here any more"
    here.stored.add("on-here", 1, "key", files=1, size_bytes=1)
    here.old_runs.remove(["on-here"])
    with pytest.raises(RunUnknown):
        here.runs.get("waits")


def test_a_new_version_takes_back_what_one_before_had_granted(site: Site) -> None:
    with site.ledger._database.transaction() as session:
        role = session.scalar(select(NodeLoginRow.role))
        session.connection().execute(text(f'GRANT UPDATE (tag), DELETE ON run TO "{role}"'))
    site.ledger.node_logins.renew()
    for statement in ("UPDATE run SET tag = 0", "DELETE FROM run"):
        with pytest.raises(LedgerRefused):
            execute(site.here, statement)
    site.here.runs.finish(site.lease.fence, OK, Measurement())


def test_a_part_of_a_gang_takes_its_lease(site: Site) -> None:
    enqueue(site.ledger, "gang", team="a")
    assert isinstance(
        admit_in_term(site.ledger, "gang", "there", Demand(GIB), others=["here"]), Lease
    )
    (held,) = site.here.leases.untaken("gang")
    taken = site.here.leases.take(held.lease_id, "gang", 1, "part")
    assert (taken.node, site.ledger.runs.get("part").node) == ("here", "here")
    site.here.runs.ready(taken.fence)
    assert site.here.gang_asks.ask(taken.fence, "ask", 0, "hostname")
    with pytest.raises(LeaseLost):
        site.here.leases.take(held.lease_id, "gang", 1, "another")


def test_it_is_let_in_no_more_once_its_login_is_removed(site: Site) -> None:
    assert (site.here.node_logins.own(), site.ledger.node_logins.own()) == ("here", None)
    site.ledger.node_logins.remove("here")
    with pytest.raises(LedgerError):
        site.here.runs.get("on-here")


def test_many_that_open_a_ledger_after_an_upgrade_grant_anew_one_after_the_other(
    site: Site,
) -> None:
    """Server, gateway, scheduler and worker start at the same moment; nodes are added meanwhile."""
    logins = site.ledger.node_logins
    with ThreadPoolExecutor(8) as openers:
        asked = [openers.submit(logins.renew) for _ in range(8)]
        asked += [openers.submit(logins.add, f"new-{n}", actor="operator") for n in range(4)]
        for each in asked:
            each.result()


@pytest.mark.postgresql
def test_what_a_change_of_the_schema_has_to_grant_comes_with_it_or_not_at_all(
    postgresql: str,
) -> None:
    """Else a node's login kept for ever what a version takes back."""

    def break_off(_: Connection) -> None:
        raise HeadwayError("no more")

    database = Database(open_engine(postgresql_support.new_database(postgresql)))
    with pytest.raises(HeadwayError, match="no more"):
        database.migrate(then=break_off)
    assert database.schema_version() is None
    assert database.migrate(then=lambda _: None)
    database.engine.dispose()


def test_it_sees_who_has_held_a_part_of_its_gpu_once_that_one_is_gone(site: Site) -> None:
    enqueue(site.ledger, "beside", team="b")
    other = granted(site.ledger, "beside", node="here")
    for lease in (site.lease, other):
        shared = "INSERT INTO lease_gpu VALUES (:lease, 'GPU-0', 1, 'shared', 0.5)"
        execute(site.ledger, shared, lease=lease.lease_id)
    site.ledger.runs.begin(other.fence, container="d", runtime="process", ttl_s=60.0)
    site.ledger.runs.finish(other.fence, OK, Measurement())
    site.ledger.leases.release(other.fence)
    own = site.here.leases.of_run("on-here")
    assert own is not None
    assert [grant.uuid for grant in own.gpus] == ["GPU-0"]
    (found,) = site.here.leases.neighbours(own, 9)
    assert (found.run_id, found.team, found.job) == ("beside", "b", {"name": "x"})
    assert None not in (found.started_at, found.ended_at, found.released_at)
