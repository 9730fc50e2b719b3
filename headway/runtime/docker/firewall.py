"""Packet rules for the bridges of containers: they lead outside, and nowhere else.

The engine's own rules keep bridges apart; they leave open the way from a
container to every address of its host, and to the addresses at which clouds
hand out a machine's credentials. The rules are in a chain of their own that
packets pass before any address is translated and before any other filter, so
that nothing that is accepted later opens a way again.
"""

import enum
import shutil
import socket
import subprocess
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from itertools import product
from pathlib import Path

CHAIN = "HEADWAY"
_TABLE = "mangle"
_TIMEOUT_S = 20.0
_LOCK_S = "5"
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
_BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
"""Holds 1 while packets between two containers of one bridge pass the rules."""

Network = IPv4Network | IPv6Network
Service = tuple[str, int]
"""Name or address of a machine, and a TCP port there."""


class Family(enum.Enum):
    """Which packets, by the program that sets their rules."""

    IPV4 = "iptables"
    IPV6 = "ip6tables"

    @property
    def socket(self) -> socket.AddressFamily:
        """The same, as sockets know it."""
        return socket.AF_INET if self is Family.IPV4 else socket.AF_INET6


_LINK_LOCAL = {Family.IPV4: "169.254.0.0/16", Family.IPV6: "fe80::/10"}
_METADATA = {
    # Of Azure, Alibaba, Oracle; the others' are link-local, but for the second one of Amazon.
    Family.IPV4: ("168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32"),
    Family.IPV6: ("fd00:ec2::254/128",),
}
_NOT_ONE_HOST_OUTSIDE = {
    Family.IPV4: ("LOCAL", "BROADCAST", "MULTICAST"),
    Family.IPV6: ("LOCAL", "ANYCAST", "MULTICAST"),
}
_DROP = ("-j", "DROP")
_PASS = ("-j", "RETURN")


def rules(family: Family, apart: Iterable[Network]) -> list[tuple[str, ...]]:
    """What becomes of a packet that a container sends; the first match counts.

    Args:
        family: Of the packet.
        apart: Subnets of bridges whose containers may not be reached by any other.
    """
    found: list[tuple[str, ...]] = [
        # Answers to who reached the container: by a published port, say.
        ("-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "--ctdir", "REPLY", *_PASS)
    ]
    if family is Family.IPV6:  # without it there is no IPv6 on a bridge at all
        found += [
            ("-p", "ipv6-icmp", "--icmpv6-type", kind, *_PASS)
            for kind in ("neighbour-solicitation", "neighbour-advertisement")
        ]
    found += [
        ("-m", "addrtype", "--dst-type", kind, *_DROP) for kind in _NOT_ONE_HOST_OUTSIDE[family]
    ]
    denied = (_LINK_LOCAL[family], *_METADATA[family])
    # Clouds answer names at the same addresses; names are no credentials.
    found += [
        ("-d", where, "-p", protocol, "--dport", "53", *_PASS)
        for where in denied
        for protocol in ("udp", "tcp")
    ]
    found += [("-d", where, *_DROP) for where in denied]
    version = 4 if family is Family.IPV4 else 6
    return found + [("-d", str(net), *_DROP) for net in apart if net.version == version]


def hold(interfaces: Sequence[str], apart: Sequence[Network], closed: Iterable[Service]) -> str:
    """Put the rules in place for packets that come from the bridges *interfaces*.

    May be repeated: an engine that starts anew or a firewall that is reloaded
    may have dropped them. The chain is replaced in one step.

    Args:
        interfaces: Of this machine.
        apart: Subnets of bridges whose containers may not be reached by any other.
        closed: Services on other machines that may not be reached either.

    Returns:
        Why they could not be set; empty when they are in place.
    """
    addresses = sorted({found for service in closed for found in _addresses(service)})
    why = _unbridged()
    for family in Family:
        if family is Family.IPV6 and not Path("/proc/net/if_inet6").exists():
            continue  # this kernel has no IPv6
        ends = [end for known, *end in addresses if known is family.socket]
        why = why or _hold(family, interfaces, rules(family, apart), ends)
    return why


def _addresses(service: Service) -> list[tuple[int, str, int]]:
    """What the name stands for now; nothing where no name server says so."""
    try:
        found = socket.getaddrinfo(*service, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    addresses = [(each[0], str(each[4][0]).partition("%")[0]) for each in found]
    # The loopback is nowhere that a packet of a container could go.
    return [(family, to, service[1]) for family, to in addresses if not ip_address(to).is_loopback]


def _unbridged() -> str:
    try:
        if _BRIDGED.read_text().strip() == "1":
            return ""
    except OSError:
        return "the kernel module br_netfilter is not loaded"
    return f"{_BRIDGED} is off, so containers on one bridge reach each other"


def _hold(
    family: Family,
    interfaces: Sequence[str],
    wanted: list[tuple[str, ...]],
    closed: Sequence[Sequence[object]],
) -> str:
    chain = "".join(f"-A {CHAIN} {' '.join(rule)}\n" for rule in wanted)
    text = f"*{_TABLE}\n:{CHAIN} - [0:0]\n{chain}COMMIT\n"
    why = _run([f"{family.value}-restore", "--noflush", "--wait", _LOCK_S], text)
    jumps: list[tuple[str, ...]] = [("-j", CHAIN)]
    # One site's servers: beside the chain, which all sites of this machine share.
    jumps += [("-d", str(to), "-p", "tcp", "--dport", str(port), *_DROP) for to, port in closed]
    for interface, jump in product(interfaces if not why else (), jumps):
        rule = ("PREROUTING", "-i", interface, *jump)
        base = (family.value, "--wait", _LOCK_S, "--table", _TABLE)
        if _run([*base, "--check", *rule]):
            why = why or _run([*base, "--insert", *rule])
    return why


def _run(command: Sequence[str], text: str = "") -> str:
    """Run it; what it complained of, empty when it did not."""
    program = shutil.which(command[0], path=_SYSTEM_PATH)
    if program is None:
        return f"{command[0]} is not installed"
    try:
        done = subprocess.run(
            [program, *command[1:]],
            input=text, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]} failed: {error}"
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
    return f"{command[0]} failed: {said[0]}"
