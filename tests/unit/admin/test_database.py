"""Which PostgreSQL a site gets, and where its addresses come from."""

from pathlib import Path

import pytest

from headway.admin.database.backup import back_up
from headway.admin.database.binaries import Binaries, version_of
from headway.admin.database.own import NoDatabase, _folder, suiting
from headway.admin.environment import site_environment
from headway.errors import LedgerMissing, LedgerUnreachable
from headway.settings import Settings
from tests.ports.clock import FakeClock

URL = "postgresql://headway:pw@/headway?host=%2Fsrv%2Fh%2Fdatabase"


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)\n", (15, "15.13")),
        ("postgres (PostgreSQL) 18.6", (18, "18.6")),
        ("postgres (PostgreSQL) 18beta1", (18, "18beta1")),
        ("postgres (PostgreSQL) 13.20", None),  # older than Prefect's server takes
        ("", None),
    ],
)
def test_a_version_is_read(said, version):
    assert version_of(said) == version


def test_a_cluster_is_run_by_the_version_that_made_it():
    system, wheel = Binaries(Path("/17"), 17, "17.2"), Binaries(Path("/w"), 18, "18.6")
    assert suiting([system, wheel], 18) == (wheel, None)
    assert suiting([system, wheel], 17) == (system, None)  # what is preferred is no newer
    assert suiting([wheel, system], 17) == (system, wheel)
    with pytest.raises(NoDatabase, match=r"15; here is 17\.2, 18\.6\. Install PostgreSQL 15 again"):
        suiting([system, wheel], 15)


def test_ledger_and_server_find_the_sites_own_database(tmp_path):
    settings = Settings(home=tmp_path)
    with pytest.raises(LedgerMissing, match="headway up"):
        _ = settings.database_url
    assert settings.server_database is None
    settings.database_note.write_text(f"{URL}\n")
    assert settings.database_url == URL
    assert settings.server_database == URL.replace("/headway?", "/prefect?")
    assert settings.services == (
        ("127.0.0.1", settings.port),
    )  # a socket is no service of a network
    url = site_environment(settings)["PREFECT_SERVER_DATABASE_CONNECTION_URL"]
    assert url == "postgresql+asyncpg://headway:pw@/prefect?host=%2Fsrv%2Fh%2Fdatabase"


@pytest.mark.parametrize(
    ("query", "url", "tls"),
    [
        ("", "", {}),
        ("?sslmode=verify-full", "", {"ENABLED": "true", "CHECK_HOSTNAME": "true"}),
        (
            "?sslmode=verify-ca&sslrootcert=system",
            "",
            {"ENABLED": "true", "CHECK_HOSTNAME": "false"},
        ),
        (
            "?sslmode=verify-full&sslrootcert=%2Fetc%2Fdb.pem&sslcert=%2Fc&sslkey=%2Fk&x=1",
            "?x=1",
            {
                "ENABLED": "true",
                "CHECK_HOSTNAME": "true",
                "CA_FILE": "/etc/db.pem",
                "CERT_FILE": "/c",
                "KEY_FILE": "/k",
            },
        ),
        ("?sslmode=require", "?ssl=require", {}),
    ],
)
def test_prefects_driver_is_told_of_tls_in_its_own_words(tmp_path, query, url, tls):
    """libpq's made its server fail at the first connection."""
    named = f"postgresql://u:pw@db/own{query}"
    found = site_environment(Settings(home=tmp_path, server_database_url=named))
    database = {k: v for k, v in found.items() if k.startswith("PREFECT_SERVER_DATABASE_")}
    prefix = "PREFECT_SERVER_DATABASE_SQLALCHEMY_CONNECT_ARGS_TLS_"
    assert database == {
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://u:pw@db/own{url}",
        **{f"{prefix}{name}": value for name, value in tls.items()},
    }


def test_a_cluster_stays_where_it_was_made_whatever_the_home_is_like_now(tmp_path):
    """The home was closed to its account when it was made; then somebody opened it."""
    settings = Settings(home=tmp_path)
    settings.database_note.write_text(f"{URL}\n")
    assert _folder(settings) == Path("/srv/h/database")


def test_what_is_named_goes_before_the_sites_own(tmp_path):
    named = "postgresql://u@db/own"
    settings = Settings(home=tmp_path, server_database_url=named)
    settings.database_note.write_text(URL)
    assert settings.server_database == named
    settings = Settings(home=tmp_path, ledger_url="postgresql://u@db/other")
    assert settings.database_url == "postgresql://u@db/other"
    assert settings.server_database is None  # with a ledger elsewhere the own one is not started
    settings = Settings(home=tmp_path)
    settings.ledger_pointer.write_text(named)
    assert settings.database_url == named
    assert settings.server_database is None


def test_a_backup_of_a_database_that_is_stopped_says_how_to_start_it(tmp_path):
    settings = Settings(home=tmp_path)
    settings.database_note.write_text(f"postgresql://headway:pw@/headway?host={tmp_path}/database")
    with pytest.raises(LedgerUnreachable, match="`headway up` starts it"):
        back_up(settings, FakeClock(), tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
