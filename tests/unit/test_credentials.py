"""Which gateway commands speak to, and by which token."""

from pathlib import Path

import pytest

from headway.credentials import (
    Address,
    credentials_file,
    find_address,
    keep_credentials,
    read_credentials,
)
from headway.errors import InvalidInput, NoCredentials
from headway.settings import Settings

FAR = Address("https://gpus.example.org:4280", "hwt_far", "-----BEGIN …")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", port=5000)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def test_the_operator_of_this_machine_needs_no_login(settings, environ):
    with pytest.raises(NoCredentials, match="headway up"):
        find_address(settings, environ)
    settings.home.mkdir()
    settings.token_file.write_text("hwt_own\n")
    assert find_address(settings, environ) == Address("http://127.0.0.1:5080", "hwt_own")


def test_a_login_counts_before_it_and_the_environment_before_both(settings, environ):
    settings.home.mkdir()
    settings.token_file.write_text("hwt_own\n")
    path = credentials_file(environ)
    keep_credentials(path, FAR)
    assert path.stat().st_mode & 0o777 == 0o600
    assert find_address(settings, environ) == read_credentials(path) == FAR
    named = environ | {"HEADWAY_URL": "http://127.0.0.1:1/", "HEADWAY_TOKEN": "hwt_named"}
    assert find_address(settings, named) == Address("http://127.0.0.1:1", "hwt_named")


def test_the_token_and_the_certificate_of_a_login_are_for_its_address_alone(settings, environ):
    keep_credentials(credentials_file(environ), FAR)
    assert find_address(settings, environ | {"HEADWAY_URL": f"{FAR.url}/"}) == FAR
    other = environ | {"HEADWAY_URL": FAR.url, "HEADWAY_TOKEN": "hwt_other"}
    assert find_address(settings, other) == Address(FAR.url, "hwt_other", FAR.certificate)
    with pytest.raises(NoCredentials, match="HEADWAY_TOKEN"):
        find_address(settings, environ | {"HEADWAY_URL": "https://other.example.org"})


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"url": 1', '{"link": "https://x"}'])
def test_a_file_that_is_none_of_ours_is_said_to_be(settings, environ, content):
    path = credentials_file(environ)
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(InvalidInput, match="log in again"):
        find_address(settings, environ)


@pytest.mark.parametrize("url", ["gpus", "ftp://gpus", "http://", "http://a:b:c", "http://\x00"])
def test_what_is_no_address_is_refused(settings, environ, url):
    with pytest.raises(InvalidInput, match="HEADWAY_URL"):
        find_address(settings, environ | {"HEADWAY_URL": url, "HEADWAY_TOKEN": "hwt_x"})


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1:4280", "http://gpus.example.org", "http://[::2]"]
)
def test_no_token_goes_where_it_could_be_read_on_the_way(settings, environ, url):
    with pytest.raises(InvalidInput, match="give https") as caught:
        find_address(settings, environ | {"HEADWAY_URL": url, "HEADWAY_TOKEN": "hwt_named"})
    assert caught.value.field == "HEADWAY_URL"
    assert "hwt_named" not in str(caught.value)
