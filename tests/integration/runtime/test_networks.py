"""What a container reaches, tried from inside on a machine of its own with a world around it."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import docker
import pytest

from headway.clock import SystemClock
from headway.model.container_policy import (
    ContainerPolicy,
    GangNetwork,
    NetworkMode,
    TeamRules,
)
from headway.runtime.docker.containers import DockerRuntime
from headway.runtime.errors import RuntimeFailure
from headway.runtime.port import ContainerSpec, ContainerState
from samples.local_image import BUSYBOX, build
from tests.ports.runtime import Script
from tests.ports.runtime_harness import Harness, Program, until, whole_log
from tests.support import dockerd, netns

pytestmark = pytest.mark.docker

HOST, GATEWAY = "10.99.7.1", "10.99.7.2"
OUTSIDE, METADATA = "198.51.100.5", "169.254.169.254"
SITE = "198.51.100.6"
"""Another machine of the site, with its database."""
NODE_PORT, WORLD_PORT, JOB_PORT = 8001, 8002, 8003
GANGS = "gangs"
OF_A_TEAM = "gangs-of-speech"
# The service below says that it is up a moment before it listens.
TRY = """\
try() {{
  said=/tmp/$1-$2; n=0
  while nc -w 6 $1 $2 </dev/null >$said 2>&1
    grep -q refused $said && [ $n -lt 20 ]; do n=$((n + 1)); sleep 0.1; done
  grep -q hello $said && echo $1:$2
}}
for each in {targets}; do try ${{each%:*}} ${{each#*:}} & done
wait
"""
SERVE = f"echo up; exec nc -ll -p {JOB_PORT} -e echo hello"  # several callers at once


@dataclass
class Machine:
    """A node with an engine of its own."""

    name: str
    engine: dockerd.Daemon
    client: docker.DockerClient

    def address(self, container: str) -> str:
        """Of a container that runs."""
        networks = self.client.api.inspect_container(container)["NetworkSettings"]["Networks"]
        return str(next(iter(networks.values()))["IPAddress"])


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    if dockerd.why_none() or shutil.which("dockerd") is None:
        pytest.skip(dockerd.why_none() or "a private engine needs dockerd")
    with ExitStack() as stack:
        node = stack.enter_context(netns.namespace(f"hw-node-{os.getpid()}"))
        world = stack.enter_context(netns.namespace(f"hw-world-{os.getpid()}"))
        netns.cable(node, f"{HOST}/24", world, f"{GATEWAY}/24")
        netns.ip("-n", node, "route", "add", "default", "via", GATEWAY)
        for address in (OUTSIDE, METADATA, SITE):
            netns.ip("-n", world, "addr", "add", f"{address}/32", "dev", "lo")
        for name, port in ((node, NODE_PORT), (world, WORLD_PORT)):
            stack.enter_context(netns.greeting(name, port))
        stack.enter_context(names(world))
        folder = tmp_path_factory.mktemp("d")
        daemon = dockerd.Daemon(folder, namespace=node, options=("--dns", OUTSIDE))
        stack.callback(daemon.stop)
        daemon.start()
        build("busybox", BUSYBOX, docker_host=daemon.host)
        client = docker.DockerClient(base_url=daemon.host)
        stack.callback(client.close)
        client.networks.create(GANGS)
        client.networks.create(OF_A_TEAM)
        yield Machine(node, daemon, client)


class names:  # noqa: N801 - used as a context
    """A name server of a namespace, by which every name is that of `OUTSIDE`."""

    def __init__(self, name: str) -> None:
        with netns.inside(name):
            self.server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.server.bind((OUTSIDE, 53))
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                asked, whence = self.server.recvfrom(512)
                end = asked.index(b"\0", 12) + 5
                is_a = asked[end - 4 : end - 2] == b"\0\1"
                head = asked[:2] + b"\x81\x80\0\1" + bytes([0, is_a]) + b"\0\0\0\0"
                found = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(OUTSIDE)
                self.server.sendto(head + asked[12:end] + found * is_a, whence)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.server.close()


@pytest.fixture
def harness(machine: Machine, tmp_path: Path) -> Iterator[Harness]:
    def make(site: str, policy: ContainerPolicy) -> DockerRuntime:
        host, closed = machine.engine.host, ((SITE, WORLD_PORT),)
        return DockerRuntime(site, policy, SystemClock(), docker_host=host, closed=lambda: closed)

    harness = Harness(make, tmp_path, BUSYBOX, site=f"nets{os.getpid()}")
    yield harness
    harness.clean_up()


def runtime(harness: Harness, **changes: Any) -> DockerRuntime:
    made = harness.make(harness.site, harness.policy().model_copy(update=changes))
    assert isinstance(made, DockerRuntime)
    return made


def served(harness: Harness, machine: Machine, **changes: Any) -> str:
    """Address of another run's container, which serves."""
    spec = harness.spec(Program(SERVE, Script()))
    spec = replace(spec, **changes)
    on = runtime(harness, gang_network=GANGS)
    on.create(spec)
    on.start(spec.name)
    until(lambda: whole_log(on, spec.name) == b"up\n")
    return machine.address(spec.name)


def targets(*others: str) -> list[str]:
    ways = [f"{HOST}:{NODE_PORT}", f"{OUTSIDE}:{WORLD_PORT}", f"{METADATA}:{WORLD_PORT}"]
    ways.append(f"{SITE}:{WORLD_PORT}")
    for other in others:
        gateway = other.rpartition(".")[0] + ".1"
        ways += [f"{other}:{JOB_PORT}", f"{gateway}:{NODE_PORT}", f"{gateway}:{JOB_PORT}"]
    return [*ways, f"{HOST}:{JOB_PORT}"]


def trying(harness: Harness, ways: list[str], **changes: Any) -> ContainerSpec:
    text = TRY.format(targets=" ".join(ways))
    return replace(harness.spec(Program(text, Script())), **changes)


def reached(on: DockerRuntime, spec: ContainerSpec) -> set[str]:
    on.start(spec.name)
    assert on.wait(spec.name, 60.0).state is ContainerState.EXITED
    return set(whole_log(on, spec.name).decode().split())


def test_a_container_reaches_the_outside_and_nothing_else(
    machine: Machine, harness: Harness
) -> None:
    with netns.inside(machine.name):
        other = served(harness, machine, ports={JOB_PORT: JOB_PORT})
        gang = served(harness, machine, network=GangNetwork(GANGS))
        # Whoever sits at the node reaches what a job has published, and so proves that it serves.
        with socket.create_connection(("127.0.0.1", JOB_PORT), 20) as published:
            assert published.recv(100) == b"hello\n"
        on = runtime(harness, gang_network=GANGS)
        ways = targets(other, gang)
        named = f"world.example:{WORLD_PORT}"
        spec = trying(harness, [named, *ways])
        assert on.guard_network() == ""
        on.create(spec)
        assert reached(on, spec) == {f"{OUTSIDE}:{WORLD_PORT}", named}
        # There is no IPv6 in there whose rules could be forgotten.
        plain = harness.spec(Program("cat /proc/net/if_inet6; echo end", Script()))
        on.create(plain)
        assert "eth0" not in reached(on, plain)


def test_rules_that_were_dropped_come_back(machine: Machine, harness: Harness) -> None:
    ways = {f"{HOST}:{NODE_PORT}", f"{METADATA}:{WORLD_PORT}", f"{SITE}:{WORLD_PORT}"}
    with netns.inside(machine.name):
        on = runtime(harness)
        open_, shut = trying(harness, [*ways]), trying(harness, [*ways])
        on.create(open_)
        on.create(shut)
        subprocess.run(["iptables", "-t", "mangle", "-F"], check=True)
        assert reached(on, open_) == ways  # so it would be, were there no rules
        assert on.guard_network() == ""
        assert reached(on, shut) == set()
        before = subprocess.run(["iptables-save"], capture_output=True, check=True).stdout
        assert on.guard_network() == ""
        after = subprocess.run(["iptables-save"], capture_output=True, check=True).stdout
        assert _rules(before) == _rules(after)


def _rules(saved: bytes) -> list[bytes]:
    return [line for line in saved.splitlines() if line.startswith(b"-A")]


def test_a_gang_meets_on_its_network_and_reaches_nothing_of_the_node(
    machine: Machine, harness: Harness
) -> None:
    with netns.inside(machine.name):
        on = runtime(harness, gang_network=GANGS)
        head = replace(
            harness.spec(Program(SERVE, Script())),
            network=GangNetwork(GANGS),
            ports={JOB_PORT: JOB_PORT},
        )
        on.create(head)
        on.start(head.name)
        until(lambda: whole_log(on, head.name) == b"up\n")
        status = on.inspect(head.name)
        assert status is not None
        assert status.address == machine.address(head.name)
        single = served(harness, machine)
        ways = [f"{head.name}:{JOB_PORT}", *targets(status.address, single)]
        spec = trying(harness, ways, network=GangNetwork(GANGS))
        assert on.guard_network() == ""
        on.create(spec)
        assert reached(on, spec) == {
            f"{head.name}:{JOB_PORT}", f"{status.address}:{JOB_PORT}", f"{OUTSIDE}:{WORLD_PORT}"
        }  # fmt: skip
        # Its own name is its own address there, which is what the head of a gang is told.
        own = harness.spec(Program("hostname; hostname -i", Script()))
        own = replace(own, network=GangNetwork(GANGS))
        on.create(own)
        on.start(own.name)
        on.wait(own.name, 20.0)
        name, address = whole_log(on, own.name).decode().split()
        assert name == own.name
        assert address.rpartition(".")[0] == status.address.rpartition(".")[0]


def test_gangs_of_two_teams_do_not_reach_each_other(machine: Machine, harness: Harness) -> None:
    teams = {"speech": TeamRules(gang_network=OF_A_TEAM)}
    with netns.inside(machine.name):
        on = runtime(harness, gang_network=GANGS, teams=teams)
        others = served(harness, machine, network=GangNetwork(GANGS))
        single = served(harness, machine)
        spec = trying(harness, targets(others, single), network=GangNetwork(OF_A_TEAM))
        assert on.guard_network() == ""
        on.create(spec)
        assert reached(on, spec) == {f"{OUTSIDE}:{WORLD_PORT}"}


def test_a_network_that_this_engine_does_not_know(machine: Machine, harness: Harness) -> None:
    with netns.inside(machine.name):
        on = runtime(harness, gang_network="nowhere")
        spec = replace(harness.spec(Program("true", Script())), network=GangNetwork("nowhere"))
        on.create(spec)
        with pytest.raises(RuntimeFailure, match="gang_network"):
            on.start(spec.name)


def test_where_rules_cannot_be_set_there_is_no_network(machine: Machine, harness: Harness) -> None:
    """Seen from another namespace the engine's bridges cannot be guarded."""
    on = runtime(harness)
    assert "Containers have no network" in on.guard_network()
    assert any("Containers have no network" in weak for weak in on.weaknesses())
    ways = [f"{HOST}:{NODE_PORT}", f"{OUTSIDE}:{WORLD_PORT}"]
    spec = trying(harness, ways)
    on.create(spec)
    assert reached(on, spec) == set()
    unguarded = runtime(harness, network=NetworkMode.UNGUARDED)
    assert "Containers reach the services of this node" in unguarded.guard_network()
    spec = trying(harness, ways)
    unguarded.create(spec)
    assert reached(unguarded, spec) >= {f"{OUTSIDE}:{WORLD_PORT}"}
    gang = replace(trying(harness, ways), network=GangNetwork(GANGS))
    with pytest.raises(RuntimeFailure, match="set network to unguarded"):
        runtime(harness, gang_network=GANGS).create(gang)
