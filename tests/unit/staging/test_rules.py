"""What a data set may be read from."""

import ipaddress

import pytest

from headway.staging.rules import SourceRules, closed_address

HOME = "/var/lib/headway"
SITE = SourceRules(closed=(HOME,), samples=f"{HOME}/samples")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/etc/shadow",
        "/etc",
        "/root/data.csv",
        "/proc/self/environ",
        "/sys/kernel",
        "/dev/mem",
        "/run/secrets/key",
        "/var/run/x",
        f"{HOME}/ledger.db",
        HOME,
        f"{HOME}/runs/r/outputs",
        "/home/a/.ssh/id_ed25519",
        "/home/a/.ssh",
        "/data/.aws/credentials",
        "/home/a/.netrc",
        "/home/a/.prefect/profiles.toml",
        "/home/a/.headway/ledger.db",
    ],
)
def test_what_no_job_reads(path: str) -> None:
    assert SITE.why_not(path) is not None


@pytest.mark.parametrize("path", ["/data/flights.csv", "/home/a/set", f"{HOME}/samples/f.csv"])
def test_what_jobs_read(path: str) -> None:
    assert SITE.why_not(path) is None


def test_mount_roots_bound_it() -> None:
    site = SourceRules(roots=("/data", "/etc/sets", "/"), closed=(HOME,))
    assert site.why_not("/data/a") is None
    assert site.why_not("/etc/sets/a") is None  # the operator said so
    narrow = SourceRules(roots=("/data",), closed=(HOME,))
    for path in ("/srv/a", "/database", "/data/a/.ssh/id"):
        assert narrow.why_not(path) is not None
    for path in (HOME, "/proc/1/environ", "/dev/sda"):
        assert site.why_not(path) is not None  # whatever the operator said


def test_rules_survive_being_written() -> None:
    rules = SourceRules(("/data",), (HOME,), f"{HOME}/samples", ("10.0.0.0/8",))
    assert SourceRules.read(rules.write() | {"roots": ["/data"]}) == rules


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.0.1",
        "169.254.169.254", "100.64.0.1", "100.100.100.200", "168.63.129.16", "224.0.0.1",
        "255.255.255.255", "240.0.0.1", "::", "::1", "fe80::1", "fd00:ec2::254", "ff02::1",
        "fec0::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a00:1::", "::127.0.0.1",
        "::10.0.0.1",
    ],
)  # fmt: skip
def test_addresses_that_are_closed(address: str) -> None:
    assert closed_address(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8"])
def test_public_addresses_are_open(address: str) -> None:
    assert not closed_address(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3"])
def test_what_the_site_lists_is_open(address: str) -> None:
    listed = (ipaddress.ip_network("10.1.0.0/16"),)
    assert not closed_address(ipaddress.ip_address(address), listed)
    assert closed_address(ipaddress.ip_address("10.2.0.1"), listed)
