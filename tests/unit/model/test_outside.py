"""One block says how programs reach what lies outside."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from headway.model.outside import Outside


def test_what_is_not_set_says_nothing() -> None:
    assert Outside().variables() == {}
    assert Outside(contact="Ann").variables("") == {}


def test_each_setting_is_told_to_all_who_read_it() -> None:
    outside = Outside(
        more_indexes=("https://a.example/simple", "file:///srv/wheels"), no_proxy=("a", "b")
    )
    assert outside.variables("/ca.pem") == {
        "UV_INDEX": "https://a.example/simple file:///srv/wheels",
        "PIP_EXTRA_INDEX_URL": "https://a.example/simple file:///srv/wheels",
        "NO_PROXY": "a,b",
        "no_proxy": "a,b",
        **dict.fromkeys(
            ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO"),
            "/ca.pem",
        ),
    }


@pytest.mark.parametrize(
    "wrong", [{"index": "https://me:secret@a.example"}, {"proxy": "a:1"}, {"contact": "a\nb"}]
)
def test_passwords_and_what_is_no_address_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Outside.model_validate(wrong)


def test_what_a_shell_has_and_containers_do_not_get_is_named() -> None:
    shell = {"SSL_CERT_FILE": "/etc/ca.pem", "https_proxy": "http://proxy:3128", "PIP_CERT": ""}
    assert Outside().lacks(shell) == ["https_proxy", "SSL_CERT_FILE"]
    assert Outside(proxy="http://proxy:3128", certificates=Path("/etc/ca.pem")).lacks(shell) == []
