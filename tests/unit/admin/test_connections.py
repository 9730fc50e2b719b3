"""A site is not brought up where others could read what its machines say."""

import pytest

from headway.admin.environment import check_connections
from headway.errors import InvalidInput
from headway.settings import Settings, read_settings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("HEADWAY_HOST", "192.0.2.1"),
        ("HEADWAY_HOST", "2001:db8::1"),
        ("HEADWAY_HOST", "0.0.0.0"),
        ("HEADWAY_SERVER_URL", "http://192.0.2.1:4200/api"),
        ("HEADWAY_LEDGER_URL", "postgresql://u:pa55word@192.0.2.1/d"),
        ("HEADWAY_SERVER_DATABASE_URL", "postgresql://u:pa55word@192.0.2.1/d?sslmode=prefer"),
        ("HEADWAY_REDIS_URL", "redis://:pa55word@192.0.2.1:6379/0"),
    ],
)
def test_what_others_could_read_is_refused(
    monkeypatch: pytest.MonkeyPatch, field: str, value: str
) -> None:
    monkeypatch.setenv(field, value)
    if field != "HEADWAY_HOST":
        monkeypatch.setenv("HEADWAY_HOST", "127.0.0.1")
    with pytest.raises(InvalidInput) as caught:
        check_connections(read_settings())
    said = str(caught.value)
    assert said.startswith(f"{field}: got ")
    assert "HEADWAY_TRUSTED_NETWORKS" in said
    assert "pa55word" not in said
    monkeypatch.setenv("HEADWAY_TRUSTED_NETWORKS", "0.0.0.0/0,2001:db8::/32")
    check_connections(read_settings())


def test_a_redis_elsewhere_is_asked_over_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_REDIS_URL", "redis://:pa55word@192.0.2.1:6379/0")
    with pytest.raises(InvalidInput, match=r"speaks TLS \(rediss\)"):
        check_connections(read_settings())
    monkeypatch.setenv("HEADWAY_REDIS_URL", "rediss://:pa55word@192.0.2.1:6379/0")
    check_connections(read_settings())
    assert ("192.0.2.1", 6379) in read_settings().services  # which containers may not reach


def test_a_site_of_one_machine_names_no_network() -> None:
    check_connections(Settings())


def test_a_network_that_is_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_TRUSTED_NETWORKS", "10.8.0.0/24,lan")
    with pytest.raises(InvalidInput, match='HEADWAY_TRUSTED_NETWORKS: got "lan"'):
        read_settings()
