"""The engine's networks that containers join, and whether packet rules guard them."""

import fcntl
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, NotFound
from docker.utils import kwargs_from_env

from headway.model.policy import OWN_NETWORK
from headway.runtime import firewall

INTERFACE = "headway0"
"""The bridge of headway's own network on the host."""

_BRIDGE = "com.docker.network.bridge"
_MTU = "com.docker.network.driver.mtu"
_OPTIONS = {f"{_BRIDGE}.name": INTERFACE, f"{_BRIDGE}.enable_icc": "false"}
_SOCKET = "unix://"
_SIOCGIFADDR = 0x8915
_DEFAULT_HOST = f"{_SOCKET}/var/run/docker.sock"


class Networks:
    """Networks of one engine. What fails at the engine is raised as the SDK raises it.

    Args:
        api: Connects to the engine.
        host: Its address; None for the SDK's default.
    """

    def __init__(self, api: Callable[[], docker.APIClient], host: str | None) -> None:
        self._api = api
        self._host = host or kwargs_from_env().get("base_url") or _DEFAULT_HOST

    def hold(self, gang_network: str, closed: Sequence[firewall.Service] = ()) -> str:
        """Have headway's network, and the rules for it and for *gang_network*, in place.

        Args:
            gang_network: Guarded too where it is a bridge of this node; may be empty.
            closed: Services on other machines that containers may not reach. What was
                closed before stays closed.

        Returns:
            Why what is on them is not guarded; empty when it is.
        """
        own = self.find(OWN_NETWORK)
        if own is None:
            refused = self._make_own()
            own = self.find(OWN_NETWORK)
            if own is None:
                return f"the engine could not make the network {OWN_NETWORK}: {refused}"
        if not _is_ours(own):
            return (
                f"the engine's network {OWN_NETWORK} is not as headway makes it; remove it with "
                f"`docker network rm {OWN_NETWORK}`"
            )
        why = self._why_elsewhere(own)
        if why:
            return why
        interfaces = [INTERFACE]
        gang = self.find(gang_network) if gang_network else None
        if gang is not None and is_bridge(gang):
            interfaces.append(_interface(gang))
        apart = [ip_network(each["Subnet"]) for each in own["IPAM"]["Config"]]
        return firewall.hold(interfaces, apart, closed)

    def find(self, name: str) -> Mapping[str, Any] | None:
        """The network of this name; None when the engine does not know it."""
        try:
            found: Mapping[str, Any] = self._api().inspect_network(name)
        except NotFound:
            return None
        return found if found["Name"] == name else None

    def _make_own(self) -> str:
        """Why the engine would not; empty when it did. Another process may do so meanwhile."""
        # A smaller MTU that the operator gave the engine holds for its default bridge alone.
        bridge = self.find("bridge")
        mtu = bridge["Options"].get(_MTU) if bridge else None
        try:
            self._api().create_network(
                OWN_NETWORK,
                driver="bridge",
                options=_OPTIONS | ({_MTU: mtu} if mtu else {}),
                check_duplicate=True,
                labels={"headway": "network"},
                enable_ipv6=False,
            )
        except APIError as error:
            return str(error.explanation or error)
        return ""

    def _why_elsewhere(self, own: Mapping[str, Any]) -> str:
        """Why rules set by this process would not be those of the engine's bridges."""
        if not self._host.startswith(_SOCKET):
            return f"the engine at {self._host} is not on this machine"
        try:
            theirs = Path(f"/proc/{_listener(self._host)}/ns/net").readlink()
            if theirs != Path("/proc/thread-self/ns/net").readlink():
                return "the engine has a network namespace of its own (a rootless engine, say)"
        except PermissionError:
            pass  # another user's process; the bridge must do for an answer
        except OSError as error:
            return f"the engine's process cannot be looked at ({error.strerror})"
        gateways = {each.get("Gateway") for each in own["IPAM"]["Config"]}
        if _address_of(INTERFACE) not in gateways:
            return f"the engine's bridge {INTERFACE} is not on this machine"
        return ""


def _address_of(interface: str) -> str | None:
    """The IPv4 address of a network interface of this machine; None when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()))
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])


def _listener(host: str) -> int:
    """Pid of the process that listens on a socket of this machine."""
    with socket.socket(socket.AF_UNIX) as knock:
        knock.connect(host.removeprefix(_SOCKET))
        found = knock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[0])


def is_bridge(network: Mapping[str, Any]) -> bool:
    """Is it a bridge of this node, so that packet rules can guard it?"""
    return bool(network["Driver"] == "bridge")


def _interface(network: Mapping[str, Any]) -> str:
    return str(network["Options"].get(f"{_BRIDGE}.name") or f"br-{network['Id'][:12]}")


def _is_ours(network: Mapping[str, Any]) -> bool:
    options = network["Options"]
    same = all(options.get(key) == value for key, value in _OPTIONS.items())
    return is_bridge(network) and same and not network["EnableIPv6"]
