"""The packet rules, and what is said where they cannot be set."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from headway.runtime.docker import firewall
from headway.runtime.docker.firewall import CHAIN, Family, hold, rules

APART = [ip_network("172.18.0.0/16"), ip_network("fd00:18::/64")]


def test_what_is_dropped() -> None:
    dropped = [" ".join(rule) for rule in rules(Family.IPV4, APART) if rule[-1] == "DROP"]
    assert dropped == [
        "-m addrtype --dst-type LOCAL -j DROP",
        "-m addrtype --dst-type BROADCAST -j DROP",
        "-m addrtype --dst-type MULTICAST -j DROP",
        "-d 169.254.0.0/16 -j DROP",
        "-d 168.63.129.16/32 -j DROP",
        "-d 100.100.100.200/32 -j DROP",
        "-d 192.0.0.192/32 -j DROP",
        "-d 172.18.0.0/16 -j DROP",
    ]
    dropped = [" ".join(rule) for rule in rules(Family.IPV6, APART) if rule[-1] == "DROP"]
    assert dropped[-3:] == [
        "-d fe80::/10 -j DROP",
        "-d fd00:ec2::254/128 -j DROP",
        "-d fd00:18::/64 -j DROP",
    ]


def test_only_answers_pass_to_the_node() -> None:
    """A connection that a container has made while there were no rules ends with them."""
    first, *others = rules(Family.IPV4, APART)
    assert first[-1] == "RETURN"
    assert "--ctdir REPLY" in " ".join(first)
    assert " ".join(others[0]) == "-m addrtype --dst-type LOCAL -j DROP"


PROGRAMS = {
    "iptables-restore": 'cat >> "$LOG"',
    "iptables": 'echo "$@" >> "$LOG"; case "$*" in *--check*) exit 1;; esac',
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that note what they were told, on a kernel that is as it should be."""
    (tmp_path / "switch").write_text("1\n")
    for family in Family:
        for name, body in PROGRAMS.items():
            program = tmp_path / (name if family is Family.IPV4 else name.replace("ip", "ip6"))
            program.write_text(f"#!/bin/sh\nLOG={tmp_path}/log\n{body}\n")
            program.chmod(0o755)
    monkeypatch.setattr(firewall, "_BRIDGED", tmp_path / "switch")
    monkeypatch.setattr(firewall, "_SYSTEM_PATH", f"{tmp_path}:/bin:/usr/bin")
    return tmp_path


def test_the_chain_comes_before_the_jump_to_it(machine: Path) -> None:
    closed = [("192.0.2.9", 5432), ("2001:db8::9", 4200), ("x" * 70, 80)]
    assert hold(["headway0"], APART, closed) == ""
    said = (machine / "log").read_text()
    assert said.index(f":{CHAIN} ") < said.index(f"--insert PREROUTING -i headway0 -j {CHAIN}")
    drops = [line.partition("--insert ")[2] for line in said.splitlines() if "--dport" in line]
    found = [line for line in drops if line]
    assert found[0] == "PREROUTING -i headway0 -d 192.0.2.9 -p tcp --dport 5432 -j DROP"
    assert found[1:] in (
        ["PREROUTING -i headway0 -d 2001:db8::9 -p tcp --dport 4200 -j DROP"],
        [],  # a kernel without IPv6
    )


@pytest.mark.parametrize("broken", ["iptables-restore", "iptables"])
def test_a_program_that_fails(machine: Path, broken: str) -> None:
    (machine / broken).write_text("#!/bin/sh\necho you must be root >&2\nexit 4\n")
    assert hold(["headway0"], APART, []) == f"{broken} failed: you must be root"


def test_a_program_that_is_missing(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firewall, "_SYSTEM_PATH", str(machine / "nowhere"))
    assert hold(["headway0"], APART, []) == "iptables-restore is not installed"


def test_bridged_packets_that_pass_no_rules(machine: Path) -> None:
    switch = machine / "switch"
    switch.write_text("0\n")
    assert "is off" in hold(["headway0"], APART, [])
    switch.unlink()
    assert "br_netfilter" in hold(["headway0"], APART, [])
