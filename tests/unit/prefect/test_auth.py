"""The auth string of a site: who has it, and who is told it."""

import os
import stat
from pathlib import Path

import pytest

from headway.admin.environment import site_environment
from headway.admin.join import leave
from headway.prefect.auth import CLIENT, SERVER, auth_for, have_auth, keep_secret, site_auth
from headway.settings import Settings


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CLIENT, SERVER):
        monkeypatch.delenv(name, raising=False)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def test_a_site_is_born_with_one_that_only_its_owner_reads(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        settings = Settings(home=tmp_path / "home")
        born = have_auth(settings)
    finally:
        os.umask(before)
    assert born.startswith("headway:")
    assert len(born) > 30
    assert (mode(settings.home), mode(settings.auth_file)) == ("0o700", "0o600")
    assert have_auth(settings) == site_auth(settings) == born
    assert have_auth(Settings(home=tmp_path / "another")) != born
    environment = site_environment(settings)
    assert environment[CLIENT] == environment[SERVER] == born


def test_an_operator_may_choose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(home=tmp_path)
    have_auth(settings)
    monkeypatch.setenv(SERVER, "admin:chosen")
    assert have_auth(settings) == "admin:chosen"
    monkeypatch.delenv(SERVER)
    assert site_auth(settings) == "admin:chosen"


def test_it_is_told_to_no_other_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(home=tmp_path)
    born = have_auth(settings)
    assert auth_for(settings, settings.api_url + "/") == born
    assert auth_for(settings, "http://elsewhere:4200/api") is None
    # That of another server, which somebody has in the shell, does not keep us from our own.
    monkeypatch.setenv(CLIENT, "other:one")
    assert auth_for(settings, "http://elsewhere:4200/api") == "other:one"
    assert site_auth(settings) == born


def test_a_secret_that_is_replaced_is_never_open(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    keep_secret(path, "new")
    assert (path.read_text(), mode(path)) == ("new\n", "0o600")
    assert list(tmp_path.iterdir()) == [path]


def test_who_leaves_a_site_forgets_its_string(tmp_path: Path) -> None:
    own = Settings(home=tmp_path / "own")
    have_auth(own)
    leave(own)
    assert own.auth_file.exists()  # this machine has the server: the string is the site's
    joined = Settings(home=tmp_path / "joined")
    keep_secret(joined.auth_file, "of:another")
    joined.server_pointer.write_text("http://head:4200/api")
    leave(joined)
    assert not joined.auth_file.exists()


def test_an_empty_file_leaves_no_server_open(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    born = have_auth(settings)
    settings.auth_file.write_text("\n")
    again = have_auth(settings)
    assert again.startswith("headway:")
    assert again != born
