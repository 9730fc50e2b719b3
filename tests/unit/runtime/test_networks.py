"""headway's own network at an engine, and why it could not be guarded."""

import os
import socket
from typing import Any

import docker
import pytest
from docker.errors import APIError, NotFound

from headway.model.container_policy import ContainerPolicy
from headway.runtime.docker.engine import Engine as Connection
from headway.runtime.docker.networks import Networks

OURS = {
    "Name": "headway",
    "Driver": "bridge",
    "EnableIPv6": False,
    "Options": {
        "com.docker.network.bridge.name": "headway0",
        "com.docker.network.bridge.enable_icc": "false",
    },
    "IPAM": {"Config": [{"Subnet": "192.0.2.0/24", "Gateway": "192.0.2.1"}]},
}
ELSEWHERE = "tcp://192.0.2.1:2376"


class Engine(docker.APIClient):
    """Networks, and what becomes of a call to make one."""

    def __init__(self, *found: dict[str, Any], refuses: str = "", meanwhile: bool = False) -> None:
        self.found = {each["Name"]: each for each in found}
        self.refuses, self.meanwhile = refuses, meanwhile
        self.asked: dict[str, Any] = {}

    def inspect_network(self, name: str) -> dict[str, Any]:  # type: ignore[override]
        if name not in self.found:
            raise NotFound("no such network")
        return self.found[name]

    def create_network(self, name: str, **asked: Any) -> None:  # type: ignore[override]
        self.asked = asked
        if self.meanwhile or not self.refuses:
            self.found[name] = OURS | {"Options": asked["options"]}
        if self.refuses:
            raise APIError("refused", explanation=self.refuses)  # type: ignore[no-untyped-call]


def hold(engine: Engine, host: str = ELSEWHERE) -> str:
    connected = Connection(host)
    connected.__dict__["api"] = engine
    return Networks(connected, ContainerPolicy(), ()).guard()


def test_it_is_made_once() -> None:
    engine = Engine({"Name": "bridge", "Options": {"com.docker.network.driver.mtu": "1400"}})
    hold(engine)
    assert engine.asked["options"] == OURS["Options"] | {"com.docker.network.driver.mtu": "1400"}
    assert engine.asked["enable_ipv6"] is False
    engine.asked = {}
    hold(engine)
    assert engine.asked == {}


def test_another_process_may_make_it_meanwhile() -> None:
    engine = Engine(refuses="networks have same bridge name", meanwhile=True)
    assert "is not on this machine" in hold(engine)


def test_an_engine_that_makes_none() -> None:
    said = hold(Engine(refuses="all predefined address pools have been fully subnetted"))
    assert said.startswith("the engine could not make the network headway: all predefined")


@pytest.mark.parametrize("change", [{"Options": {}}, {"EnableIPv6": True}, {"Driver": "macvlan"}])
def test_one_of_another_making(change: dict[str, Any]) -> None:
    assert "docker network rm headway" in hold(Engine(OURS | change))


def test_an_engine_of_another_machine() -> None:
    assert hold(Engine(OURS)) == f"the engine at {ELSEWHERE} is not on this machine"


def test_an_engine_that_nobody_can_look_at() -> None:
    assert "cannot be looked at" in hold(Engine(OURS), "unix:///nowhere")


def test_an_engine_whose_bridge_is_not_here() -> None:
    """As behind a socket that is forwarded to another machine."""
    path = f"@headway-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.replace("@", "\0"))
        listener.listen()
        assert "headway0 is not on this machine" in hold(Engine(OURS), f"unix://\0{path[1:]}")
