"""The engine's networks that containers join, and whether packet rules guard them."""

import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound
from psutil import net_if_addrs

from headway.model.container_policy import OWN_NETWORK, ContainerPolicy, GangNetwork, NetworkMode
from headway.runtime.docker import firewall
from headway.runtime.docker.engine import SOCKET, Engine, asking
from headway.runtime.errors import RuntimeFailure

INTERFACE = "headway0"
"""The bridge of headway's own network on the host."""

_BRIDGE = "com.docker.network.bridge"
_MTU = "com.docker.network.driver.mtu"
_OPTIONS = {f"{_BRIDGE}.name": INTERFACE, f"{_BRIDGE}.enable_icc": "false"}
_BLOCK = "the block headway-container-policy/site"


@dataclass(frozen=True, slots=True)
class Networks:
    """Networks of one engine."""

    engine: Engine
    policy: ContainerPolicy
    """What containers may do."""
    closed: Callable[[], Sequence[firewall.Service]]
    """Asked for the services on other machines that containers may not reach now."""

    def joined(self, asked: NetworkMode | GangNetwork | None) -> str:
        """The engine's network that a container joins that *asked* for one, guarded by now.

        Raises:
            RuntimeFailure: The network of gangs is a bridge that cannot be guarded.
        """
        wanted = asked or self.policy.network
        if isinstance(wanted, GangNetwork):
            if self.policy.network not in {NetworkMode.UNGUARDED, NetworkMode.HOST}:
                self._guard_gang(wanted.name)
            return wanted.name
        if wanted in {NetworkMode.HOST, NetworkMode.NONE}:
            return wanted.value
        why = self.guard()
        return NetworkMode.NONE.value if why and wanted is NetworkMode.BRIDGE else OWN_NETWORK

    def _guard_gang(self, name: str) -> None:
        found = self._find(name)
        why = self.guard() if found is not None and _is_bridge(found) else ""
        if why:
            raise RuntimeFailure(
                f"the network {name} is a bridge of this node, and a container on it would reach "
                f"the node's services: {why}. Let headway set packet rules, or set network to "
                f"unguarded in {_BLOCK}"
            )

    def weakness(self) -> str:
        """Put the packet rules of the bridges in place; what of that cannot be had."""
        unbridged = self.policy.network in {NetworkMode.HOST, NetworkMode.NONE}
        if unbridged and not self.policy.gang_networks:
            return ""
        # Not with each start: a name server that does not answer would hold it up.
        why = self.guard(self.closed())
        if why and self.policy.network is NetworkMode.BRIDGE:
            return (
                f"Containers have no network, since it cannot be guarded ({why}). Let headway set "
                f"packet rules, or set network to unguarded in {_BLOCK}."
            )
        if why:
            return f"Containers reach the services of this node ({why})."
        for name in self.policy.gang_networks:
            found = self._find(name)
            if found is not None and not _is_bridge(found) and not found["Internal"]:
                return (
                    f"Packet rules do not guard the network {name} (driver {found['Driver']}): "
                    "make it --internal where gangs need nothing else."
                )
        return ""

    def guard(self, closed: Sequence[firewall.Service] = ()) -> str:
        """Have headway's network, and the rules for it and for the gangs', in place.

        Args:
            closed: Services on other machines that containers may not reach. What was
                closed before stays closed.

        Returns:
            Why what is on them is not guarded; empty when it is.
        """
        own = self._find(OWN_NETWORK)
        if own is None:
            refused = self._make_own()
            own = self._find(OWN_NETWORK)
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
        gangs = map(self._find, self.policy.gang_networks)
        interfaces += [_interface(gang) for gang in gangs if gang is not None and _is_bridge(gang)]
        apart = [ip_network(each["Subnet"]) for each in own["IPAM"]["Config"]]
        return firewall.hold(interfaces, apart, closed)

    def _find(self, name: str) -> Mapping[str, Any] | None:
        """The network of this name; None when the engine does not know it."""
        with asking(f"look for network {name}"):
            try:
                found: Mapping[str, Any] = self.engine.api.inspect_network(name)
            except NotFound:
                return None
        return found if found["Name"] == name else None

    def _make_own(self) -> str:
        """Why the engine would not; empty when it did. Another process may do so meanwhile."""
        # A smaller MTU that the operator gave the engine holds for its default bridge alone.
        bridge = self._find("bridge")
        mtu = bridge["Options"].get(_MTU) if bridge else None
        with asking(f"make network {OWN_NETWORK}"):
            try:
                self.engine.api.create_network(
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
        address = self.engine.address
        if not address.startswith(SOCKET):
            return f"the engine at {address} is not on this machine"
        try:
            theirs = Path(f"/proc/{_listener(address)}/ns/net").readlink()
            if theirs != Path("/proc/thread-self/ns/net").readlink():
                return "the engine has a network namespace of its own (a rootless engine, say)"
        except PermissionError:
            pass  # another user's process; the bridge must do for an answer
        except OSError as error:
            return f"the engine's process cannot be looked at ({error.strerror})"
        gateways = {each.get("Gateway") for each in own["IPAM"]["Config"]}
        if not any(each.address in gateways for each in net_if_addrs().get(INTERFACE, ())):
            return f"the engine's bridge {INTERFACE} is not on this machine"
        return ""


def _listener(address: str) -> int:
    """Pid of the process that listens on a socket of this machine."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(address.removeprefix(SOCKET))
        found = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[0])


def _is_bridge(network: Mapping[str, Any]) -> bool:
    """Is it a bridge of this node, so that packet rules can guard it?"""
    return bool(network["Driver"] == "bridge")


def _interface(network: Mapping[str, Any]) -> str:
    return str(network["Options"].get(f"{_BRIDGE}.name") or f"br-{network['Id'][:12]}")


def _is_ours(network: Mapping[str, Any]) -> bool:
    options = network["Options"]
    same = all(options.get(key) == value for key, value in _OPTIONS.items())
    return _is_bridge(network) and same and not network["EnableIPv6"]
