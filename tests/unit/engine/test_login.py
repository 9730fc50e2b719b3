"""Whose account a member's jobs have: what an operator says, and no account of the system's."""

import pwd

import pytest

from headway.engine.login import Login, login_of
from headway.model.lease import Refuse
from headway.policy.settings import OnEngine, PolicySettings, TeamSettings

KNOWN = {"ada": 1001, "vision": 1500, "root": 0, "www": 33, "nobody": 65534, "slurm": 64030}


@pytest.fixture(autouse=True)
def accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(name: str) -> pwd.struct_passwd:
        uid = KNOWN[name]
        return pwd.struct_passwd((name, "x", uid, 100, "", f"/home/{name}", "/bin/sh"))

    monkeypatch.setattr("pwd.getpwnam", named)
    monkeypatch.setattr("os.geteuid", lambda: 0)


def found(owner: str, **logins: str) -> Login | Refuse | None:
    said = {key.replace("others", "*"): name for key, name in logins.items()}
    team = TeamSettings(engines={"slurm": OnEngine(logins=said)})
    return login_of(PolicySettings(teams={"t": team}), "slurm", "t", owner)


def test_an_operator_says_whose_account_it_is() -> None:
    assert found("a", a="ada") == Login("ada", 1001, 100, "/home/ada")
    assert found("ada", others="*") == Login("ada", 1001, 100, "/home/ada")
    assert found("ada", others="vision") == Login("vision", 1500, 100, "/home/vision")
    assert found("ada", ada="vision", others="*") == Login("vision", 1500, 100, "/home/vision")


@pytest.mark.parametrize(
    ("owner", "logins"),
    [
        ("ada", {}),
        ("ada", {"bob": "ada"}),
        ("", {"others": "*"}),
        ("ada", {"ada": "root"}),
        ("root", {"others": "*"}),
        ("ada", {"ada": "www"}),
        ("ada", {"ada": "nobody"}),
        ("ada", {"ada": "slurm"}),
        ("ada", {"ada": "stranger"}),
    ],
)
def test_nobody_goes_as_what_no_operator_has_said_nor_as_the_system(
    owner: str, logins: dict[str, str]
) -> None:
    refused = found(owner, **logins)
    assert isinstance(refused, Refuse)
    assert refused.field == "owner"


def test_an_ordinary_users_site_hands_in_as_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert found("ada") is None


def test_other_engines_know_no_accounts() -> None:
    assert login_of(PolicySettings(), "ray", "t", "ada") is None
