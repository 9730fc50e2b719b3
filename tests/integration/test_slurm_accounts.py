"""A team's account and QOS at a real Slurm with accounting."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.model.run import ExitKind
from headway.policy.settings import LINE
from tests.integration.test_engine_queue import often, sh
from tests.integration.test_slurm_queue import OnSlurm
from tests.support.postgresql import with_ledger
from tests.support.site import wait_for
from tests.support.slurm import Slurm, account, logins, why_none
from tests.support.slurm_accounts import PROGRAMS, slurm_with_accounts

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("often")]
__all__ = ["often"]


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if why := why_none():
        pytest.skip(why)
    with account(tmp_path_factory.mktemp("member") / "home") as user:
        yield user.pw_name


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, login: str) -> Iterator[Slurm]:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if why := why_none() or (missing and f"no {', '.join(missing)} (slurmdbd, mariadb-server)"):
        pytest.skip(str(why))
    with slurm_with_accounts(tmp_path_factory.mktemp("accounts"), login) as cluster:
        yield cluster


@pytest.fixture
def follower(
    tmp_path: Path, cluster: Slurm, login: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OnSlurm]:
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    found = OnSlurm(with_ledger(tmp_path), login)
    yield found
    cluster.ask("scancel", "--partition=all")
    found.site.ledger.close()


def goes_as(follower: OnSlurm, login: str, **there: str) -> None:
    """As an operator says it in the block of the queue."""
    follower.site.ledger.settings.keep(LINE, logins("t", {"o": login}, **there))


def accounted(cluster: Slurm, name: str) -> str:
    """Account, QOS and state of the job of that name, as Slurm's accounting has them."""
    asked = "sacct", "-X", "-n", "-P", f"--name={name}", "--format=Account,QOS,State"
    return cluster.ask(*asked)


def test_a_team_goes_by_its_account_and_qos(follower: OnSlurm, cluster: Slurm, login: str) -> None:
    follower.enqueue("default", *sh(":"))
    follower.ends_well("default")
    goes_as(follower, login, account="vision", qos="normal")
    follower.enqueue("team", *sh(":"))
    follower.ends_well("team")
    # The daemon of the accounts hears of a job some seconds after it has ended.
    wait_for(
        lambda: accounted(cluster, "default").startswith("lab|short|"),
        lambda: accounted(cluster, "default"),
    )
    wait_for(
        lambda: accounted(cluster, "team").startswith("vision|normal|"),
        lambda: accounted(cluster, "team"),
    )


def test_an_account_that_the_cluster_does_not_know_is_told(follower: OnSlurm, login: str) -> None:
    goes_as(follower, login, account="nobody")
    follower.enqueue("lost", *sh(":"))
    exit_ = follower.ended("lost").exit
    assert exit_ is not None
    assert exit_.kind is ExitKind.REFUSED
    assert "Invalid account" in exit_.message


def test_how_much_of_a_limit_is_held_is_told(follower: OnSlurm, cluster: Slurm) -> None:
    limit = "--immediate", "modify", "qos", "short", "set"
    cluster.ask("sacctmgr", *limit, "MaxJobsPerUser=1")
    try:
        follower.enqueue("first", *sh("sleep 60"), max_runtime="10min")
        follower.running("first")
        follower.enqueue("second", *sh(":"))
        follower.until(lambda: "QOS short" in follower.run("second").reason)
        told = follower.run("second").reason
        assert "no more jobs be held for you at once (limit 1, held 1; the first of yours" in told
    finally:
        cluster.ask("sacctmgr", *limit, "MaxJobsPerUser=-1")
