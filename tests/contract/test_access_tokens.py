"""Tokens of the gateway and the audit table."""

import pytest
from sqlalchemy import text

from headway.errors import LedgerError
from headway.ledger import Ledger
from headway.ledger.audit_log import Act
from headway.model.access import AccessToken, Caller, Scope, token_digest
from headway.model.node import NodeState
from tests.support.on_ledger import join

SECRET = "hwt_" + "a" * 43
MEMBER = frozenset({Scope.WATCH, Scope.SUBMIT})


def add(ledger: Ledger, secret: str = SECRET, *, lifetime_s: float = 60.0) -> AccessToken:
    return ledger.access_tokens.add(
        token_digest(secret), user="ada", team="vision", scopes=MEMBER, lifetime_s=lifetime_s,
        actor="root",
    )  # fmt: skip


def contents(ledger: Ledger) -> str:
    with ledger._database.reading() as session:
        tables = [session.execute(text(f"SELECT * FROM {name}")) for name in TABLES]
        return repr([list(rows) for rows in tables])


TABLES = ("access_token", "audit")


def test_a_token_is_found_by_its_digest_alone(ledger: Ledger) -> None:
    made = add(ledger)
    found = ledger.access_tokens.valid(token_digest(SECRET))
    assert found == made
    assert found.caller == Caller("ada", "vision", MEMBER)
    assert ledger.access_tokens.valid(SECRET) is None
    assert ledger.access_tokens.valid(token_digest(SECRET + "b")) is None
    assert SECRET not in contents(ledger)


def test_a_token_ends_with_its_lifetime(ledger: Ledger) -> None:
    made = add(ledger, lifetime_s=0.001)
    assert not made.is_valid(ledger.now())
    assert ledger.access_tokens.valid(token_digest(SECRET)) is None


def test_a_revoked_token_lets_nobody_in(ledger: Ledger) -> None:
    first, second = add(ledger), add(ledger, "hwt_" + "b" * 43)
    (gone,) = ledger.access_tokens.revoke("ada", actor="root", token_id=second.token_id)
    assert gone.token_id == second.token_id
    assert ledger.access_tokens.valid(token_digest("hwt_" + "b" * 43)) is None
    assert ledger.access_tokens.valid(token_digest(SECRET)) == first
    assert [each.token_id for each in ledger.access_tokens.revoke("ada", actor="root")] == [1]
    assert ledger.access_tokens.revoke("ada", actor="root") == []
    assert ledger.access_tokens.valid(token_digest(SECRET)) is None
    assert [each.revoked_at is None for each in ledger.access_tokens.all()] == [False, False]


def test_one_digest_is_one_token(ledger: Ledger) -> None:
    add(ledger)
    with pytest.raises(LedgerError):
        add(ledger)
    assert len(ledger.audit_log.newest(10)) == 1  # what did not happen is not noted either


def test_each_change_of_a_token_is_noted_with_who_made_it(ledger: Ledger) -> None:
    add(ledger)
    ledger.access_tokens.revoke("ada", actor="eve")
    revoked, added = ledger.audit_log.newest(10)
    assert (added.actor, added.act, added.subject) == ("root", "user.add", "ada")
    assert added.details["scopes"] == "submit watch"
    assert (revoked.actor, revoked.act, revoked.details) == ("eve", "user.revoke", {"token": "1"})
    assert ledger.audit_log.newest(10, actor="eve") == [revoked]
    assert ledger.audit_log.newest(10, subject="nobody") == []


def test_a_node_and_a_setting_are_changed_together_with_their_notes(ledger: Ledger) -> None:
    join(ledger)
    assert ledger.nodes.set_state("node-a", NodeState.LOST, "silent")  # headway's own doing
    assert ledger.nodes.set_state("node-a", NodeState.DRAINING, "new fan", actor="root")
    assert not ledger.nodes.set_state("node-b", NodeState.DRAINING, "new fan", actor="root")
    assert ledger.settings.get("line") is None
    quota = {"teams": {"vision": {"max_gpus": 8}}}
    assert ledger.settings.put("line", quota | {"factor": 2})
    assert ledger.settings.put("line", {"teams": {}, "factor": 2})
    assert not ledger.settings.put("line", {"teams": {}, "factor": 2})
    assert ledger.settings.get("line") == {"teams": {}, "factor": 2}
    assert ledger.nodes.remove("node-a", actor="root")
    removed, changed, first, drained = ledger.audit_log.newest(10)
    assert (removed.act, removed.details) == ("node.remove", {"powered_off": "yes"})
    assert changed.details == {"teams": "{'vision': {'max_gpus': 8}} → {}"}
    assert first.details["factor"] == "nothing → 2"
    assert drained.details == {"from": "lost", "to": "draining", "reason": "new fan"}
    assert (drained.actor, drained.act, drained.subject) == ("root", "node.state", "node-a")


@pytest.mark.parametrize(
    "change", ["UPDATE audit SET actor = 'nobody'", "DELETE FROM audit", "TRUNCATE audit"]
)
def test_the_audit_table_is_append_only(ledger: Ledger, change: str) -> None:
    ledger.audit_log.write(Act("root", "node.drain", "node-a", {"reason": "hot"}))
    with pytest.raises(LedgerError), ledger._database.transaction() as session:
        session.execute(text(change))
    (entry,) = ledger.audit_log.newest(10)
    assert (entry.actor, entry.details) == ("root", {"reason": "hot"})


def test_whose_a_submission_is_does_not_change_when_it_comes_again(ledger: Ledger) -> None:
    assert ledger.submissions.whose("vision/ada/nightly") is None
    for owner in ("ada", "eve"):
        act = Act("ada", "run.submit", "digits", {"owner": owner})
        ledger.submissions.add("vision/ada/nightly", owner=owner, team="vision", act=act)
    assert ledger.submissions.whose("vision/ada/nightly") == ("ada", "vision")
    noted = [each.details["owner"] for each in ledger.audit_log.newest(2, subject="digits")]
    assert noted == ["eve", "ada"]
