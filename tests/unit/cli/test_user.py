"""`headway user` and `headway audit`, on a ledger of their own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headway.cli.main import headway
from headway.ledger import Ledger
from headway.model.access import looks_like_token, token_digest
from headway.this_node import os_user
from tests.support.postgresql import new_ledger
from tests.support.site import forget_site


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    url = new_ledger()
    monkeypatch.setenv("HEADWAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEADWAY_LEDGER_URL", url)
    opened = Ledger.open(url)
    forget_site()
    yield opened
    forget_site()
    opened.close()


def call(*arguments: str) -> Result:
    return CliRunner().invoke(headway, [*arguments])


def document(*arguments: str) -> Any:
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_token_is_shown_once_and_can_be_revoked(ledger: Ledger) -> None:
    made = document("user", "add", "ada", "--team", "vision")
    token = made.pop("token")
    assert looks_like_token(token)
    assert (made["user"], made["team"], made["scopes"]) == ("ada", "vision", ["submit", "watch"])
    assert ledger.access_tokens.valid(token_digest(token)) is not None
    assert document("user", "list") == [made]
    assert token not in call("user", "list").stdout + call("audit").stdout

    assert document("user", "revoke", "ada") == {"user": "ada", "revoked": [1]}
    assert ledger.access_tokens.valid(token_digest(token)) is None
    assert document("user", "list")[0]["state"] == "revoked"
    assert [each["act"] for each in document("audit")] == ["user.revoke", "user.add"]
    assert {each["actor"] for each in document("audit")} == {os_user()}


def test_one_of_a_name_in_several_teams_is_revoked_and_no_other(ledger: Ledger) -> None:
    for team in ("vision", "speech"):
        document("user", "add", "ada", "--team", team)
    refused = call("user", "revoke", "ada")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert '"ada" is in the teams speech, vision; say which with --team' in refused.stderr
    assert all(each.revoked_at is None for each in ledger.access_tokens.all())
    assert document("user", "revoke", "ada", "--team", "vision")["revoked"] == [1]
    assert document("user", "revoke", "ada")["revoked"] == [2]


def test_the_only_team_need_not_be_said(ledger: Ledger) -> None:
    assert document("user", "add", "ada")["team"] == "default"
    document("user", "add", "ada", "--team", "vision")
    assert document("user", "add", "bob")["team"] == "vision"
    document("user", "add", "eve", "--team", "speech")
    assert "one of speech, vision, or a new one" in call("user", "add", "dan").stderr
    assert len(ledger.access_tokens.all()) == 4


def test_only_the_token_goes_to_standard_output() -> None:
    done = call("user", "add", "ada", "--team", "vision", "--scope", "operate", "--expires", "1h")
    assert looks_like_token(done.stdout.strip())
    assert "is not shown again" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "ada; rm", "--team", "t"], 'user: got "ada; rm"; give 1 to 63 letters'),
        (["add", "", "--team", "t"], 'user: got ""; give 1 to 63 letters'),
        (["add", "ada", "--team", "a\u202eb"], 'team: got "a\\u202eb"; give 1 to 63 letters'),
        (["add", "ada", "--team", "t", "--expires", "0s"], 'expires: got "0.0 s"; give more than'),
        (["add", "ada", "--team", "t", "--expires", "9999d"], "up to 1825 d"),
        (["add", "ada", "--team", "t", "--expires", "soon"], "give a duration such as 90d"),
        (["add", "ada", "--team", "t", "--scope", "root"], "'root' is not one of"),
        (["revoke", "eve"], 'no token of "eve" is left to revoke; see `headway user list`'),
    ],
)
def test_what_cannot_be_is_refused_with_status_2(
    ledger: Ledger, arguments: list[str], said: str
) -> None:
    done = call("user", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert ledger.access_tokens.all() == []
    assert ledger.audit_log.newest(10) == []
