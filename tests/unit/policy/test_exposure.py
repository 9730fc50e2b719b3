"""What may cross a network without TLS."""

from ipaddress import ip_network

import pytest

from headway.policy.exposure import is_exposed, speaks_tls

VPN = (ip_network("10.8.0.0/24"), ip_network("fd00::/64"))


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://head/api", True),
        ("http://head/api", False),
        ("postgresql://u@head/db?sslmode=verify-full", True),
        ("postgresql+psycopg://u@head/db?sslmode=verify-ca", True),
        ("postgresql://u@head/db?sslmode=require", False),
        ("postgresql://u@head/db?sslmode=verify-full&sslmode=disable", False),
        ("postgresql://u@head/db", False),
    ],
)
def test_tls_counts_where_the_other_side_is_known(url: str, safe: bool) -> None:
    assert speaks_tls(url) is safe


@pytest.mark.parametrize(
    ("addresses", "exposed"),
    [
        ([], False),  # a file or a socket
        (["127.0.0.1", "::1"], False),
        (["10.8.0.7"], False),
        (["fd00::1", "10.8.0.7"], False),
        (["fe80::1%eth0"], True),
        (["10.8.1.7"], True),
        (["10.8.0.7", "192.0.2.1"], True),  # a name may stand for both
        (["0.0.0.0"], True),
        (["::"], True),
    ],
)
def test_only_trusted_networks_carry_what_is_not_encrypted(
    addresses: list[str], exposed: bool
) -> None:
    assert is_exposed("http://head/api", addresses, VPN) is exposed
    assert not is_exposed("https://head/api", addresses, ())


def test_every_address_is_trusted_only_in_words() -> None:
    assert not is_exposed("http://0.0.0.0", ["0.0.0.0"], (ip_network("0.0.0.0/0"),))
