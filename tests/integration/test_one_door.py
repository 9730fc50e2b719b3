"""Two teams, two nodes and a laptop, each a network of its own; set up by the documents' commands.

`head` has server, gateway, ledger and a node, `other` the second node, and each an engine. The
laptop's way leads to `head` alone, where packet rules leave it the gateway's port.
"""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from headway.clock import SystemClock
from headway.node.certificate import CertificateFiles, keep_self_signed
from samples.local_image import BUSYBOX, build
from tests.support import dockerd, netns, postgresql
from tests.support.site import BIN, PATIENCE_S, ROOT, let_through, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.postgresql, pytest.mark.prefect]

HEAD, OTHER, SITE = "10.8.0.1", "10.8.0.2", "10.8.0.0/24"
DOOR, LAPTOP = "192.0.2.1", "192.0.2.2"
NAME = "gpus.example.org"
API, DATABASE, GATEWAY, FREE = 4200, 5432, 4280, 8002
PAGE = (ROOT / "docs/operating.md").read_text()
MEMBERS = (ROOT / "docs/member.md").read_text()
BLOCK = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
TOKEN = re.compile(r"hwt_[\w-]+")
CANARY = "only for team vision"
WRITES = f"id -u; echo {CANARY}; echo {CANARY} >$HEADWAY_OUTPUTS/model.pt; echo written; "


def written(begin: str, end: str) -> list[str]:
    """The commands of a part of the page for operators, block by block."""
    part = PAGE[PAGE.index(begin) : PAGE.index(end)]
    return [re.sub("^ {4}", "", block, flags=re.MULTILINE) for block in BLOCK.findall(part)]


@dataclass
class Machine:
    """A computer with a network, a home and, if it is a node, an engine of its own."""

    network: str
    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    exported: str = ""
    """What was typed there that holds for later commands."""

    def __post_init__(self) -> None:
        (self.folder / "home").mkdir(parents=True)
        path = f"{BIN}:{os.environ['PATH']}"
        self.env = {"HOME": str(self.folder / "home"), "PATH": path, "LC_ALL": "C.UTF-8"} | self.env

    def types(
        self, commands: str, given: str = "", *, fails: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Lines of a shell, typed on this machine; *fails* is the expected exit status."""
        done = subprocess.run(
            [*self.enter(), "bash", "-euc", f"{self.exported}\n{commands}"],
            env=self.env, cwd=self.folder, input=given, capture_output=True, text=True,
            timeout=2 * PATIENCE_S, check=False, start_new_session=True,
        )  # fmt: skip
        assert done.returncode == fails, (commands, done.stdout, done.stderr)
        lines = [each for each in commands.splitlines() if each.startswith("export ")]
        self.exported += "".join(f"{each}\n" for each in lines)
        return done

    def enter(self) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.network}"]

    def json(self, command: str) -> Any:
        return json.loads(self.types(f"{command} --json").stdout)

    def reaches(self, host: str, port: int) -> bool:
        """Whether somebody answers there who is asked from this machine."""
        with netns.inside(self.network), suppress(OSError):
            socket.create_connection((host, port), timeout=0.5).close()
            return True
        return False


class Laptop(Machine):
    """One that knows the gateway's name, as `ip netns exec` puts it into /etc/hosts."""

    def enter(self) -> list[str]:
        return ["ip", "netns", "exec", self.network]


@dataclass
class Site:
    """All of it."""

    head: Machine
    other: Machine
    ada: Laptop
    bob: Laptop

    def files_port(self, machine: Machine) -> int:
        """Where the node *machine* serves files of its runs."""
        return int((machine.folder / "headway/state/files.port").read_text())


def engine(stack: ExitStack, network: str, folder: Path) -> dict[str, str]:
    """Start one on the machine of *network*; the variables by which its node finds it."""
    folder.mkdir()
    daemon = dockerd.Daemon(folder, namespace=network)
    stack.callback(daemon.stop)
    daemon.start()
    build("busybox", BUSYBOX, docker_host=daemon.host)
    return {"HEADWAY_RUNTIME": "docker", "HEADWAY_DOCKER_HOST": daemon.host}


def database(stack: ExitStack, network: str, folder: Path) -> Path:
    """Start PostgreSQL as the page says it listens; the certificate to know it by."""
    files = CertificateFiles(folder / "database.pem", folder / "database.key")
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address(HEAD))])
    key = ec.generate_private_key(ec.SECP256R1())
    keep_self_signed(files, key, HEAD, SystemClock().now(), [(address, False)])
    shutil.chown(files.key, "postgres", "postgres")
    files.certificate.chmod(0o644)
    (rule,) = re.findall(r"`(hostssl all headway .*?)`", PAGE)
    options = [f"ssl_cert_file={files.certificate}", f"ssl_key_file={files.key}", "ssl=on"]
    with netns.inside(network):
        server = postgresql.server(
            *(word for option in options for word in ("-c", option)),
            address=HEAD, network=SITE, port=DATABASE, superuser="postgres", rule=rule,
        )  # fmt: skip
        stack.enter_context(server)
    return files.certificate


def networks(stack: ExitStack) -> tuple[str, str, str]:
    """Those of head, the other node and the laptop, joined by two cables."""
    head, other, laptop = (
        stack.enter_context(netns.namespace(f"hw-{name}-{os.getpid()}"))
        for name in ("head", "other", "laptop")
    )
    netns.cable(head, f"{HEAD}/24", other, f"{OTHER}/24")
    netns.cable(head, f"{DOOR}/24", laptop, f"{LAPTOP}/24", "eth1")
    netns.ip("-n", other, "route", "add", "default", "via", HEAD)
    netns.ip("-n", laptop, "route", "add", "default", "via", DOOR)
    known = Path("/etc/netns", laptop)
    known.mkdir(parents=True)
    stack.callback(shutil.rmtree, known)
    (known / "hosts").write_text(f"127.0.0.1 localhost\n{DOOR} {NAME}\n")
    return head, other, laptop


def machines(stack: ExitStack, folder: Path) -> tuple[Site, Path]:
    """The machines, with nothing of headway on them yet, and the database's certificate."""
    networks_ = networks(stack)
    certificate = database(stack, networks_[0], folder)
    nodes = []
    for name, network in zip(("head", "other"), networks_, strict=False):
        own = {"HEADWAY_HOME": str(folder / name / "headway"), "HEADWAY_NODE": name}
        env = engine(stack, network, folder / f"e{name[0]}")
        nodes.append(Machine(network, folder / name, own | env))
    ada, bob = (Laptop(networks_[2], folder / name) for name in ("ada", "bob"))
    return Site(*nodes, ada, bob), certificate


def set_up(site: Site, certificate: Path) -> None:
    """Type what the page says, on the machines that it says it for."""
    blocks = written("**Several machines.**", "`headway serve` is the server alone")
    network, superusers, sites, rules, join = (
        each.replace("/etc/headway/database.pem", str(certificate)) for each in blocks
    )
    refused = site.other.types(join, fails=2)
    assert f'server: got "{HEAD}"; auth strings' in refused.stderr
    for machine in (site.head, site.other):
        machine.types(network)
    site.head.types(f"export PGHOST=127.0.0.1 PGUSER=postgres PGDATABASE=postgres\n{superusers}")
    site.head.types(sites)
    # Without the rules the laptop would get there: what is asserted later can fail.
    assert site.ada.reaches(HEAD, API)
    site.head.types(rules)
    asked = site.other.types(join, fails=3)
    assert "give it as PREFECT_API_AUTH_STRING" in asked.stderr
    assert not (site.other.folder / "headway/server.url").exists()
    secret = (site.head.folder / "headway/auth").read_text().strip()
    site.other.types(f"PREFECT_API_AUTH_STRING={secret} {join}")
    assert (site.other.folder / "headway/auth").stat().st_mode & 0o077 == 0


def log_in(site: Site) -> None:
    """Make a user of each team, and log each in on a laptop."""
    add = written("    headway user add", "    headway user list")[0]
    assert "add ada --team vision" in add
    (login,) = re.findall(r"^ {4}(headway login .*)$", MEMBERS, re.MULTILINE)
    fingerprint = site.head.json("headway certificate")["fingerprint"]
    for laptop, line in ((site.ada, add), (site.bob, "headway user add bob --team speech")):
        (token,) = TOKEN.findall(site.head.types(line).stdout)
        refused = laptop.types(login, "n\n", fails=2)
        assert fingerprint in refused.stdout + refused.stderr
        laptop.types(login, f"y\n{token}\n")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    if reason := postgresql.why_none() or dockerd.why_none():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("d")
    let_through(folder)
    with ExitStack() as stack:
        made, certificate = machines(stack, folder)
        for machine in (made.head, made.other):
            stack.callback(machine.types, "headway down")
        set_up(made, certificate)
        log_in(made)
        yield made


def job(machine: Machine, name: str, program: str, **more: Any) -> str:
    """A job file on *machine*; its path."""
    path = machine.folder / f"{name}.json"
    document = {
        "name": name,
        "image": BUSYBOX,
        "command": ["sh", "-c", program],
        "resources": {"host_memory": "64MiB", "cpus": 0.1},
        **more,
    }
    path.write_text(json.dumps(document))
    return str(path)


def until(machine: Machine, run: str, *states: str) -> Mapping[str, Any]:
    """Wait until the run is in one of *states*; what it then shows."""

    def seen() -> Mapping[str, Any] | None:
        view: Mapping[str, Any] = machine.json(f"headway show {run}")
        return view if view["state"] in states else None

    found: Mapping[str, Any] = wait_for(seen, lambda: str(machine.json(f"headway show {run}")))
    return found


def test_the_laptop_reaches_the_gateway_and_nothing_else(site: Site) -> None:
    assert site.ada.reaches(DOOR, GATEWAY)
    closed = [(HEAD, API), (DOOR, API), (HEAD, DATABASE), (DOOR, DATABASE)]
    closed += [(HEAD, site.files_port(site.head)), (OTHER, site.files_port(site.other))]
    for host, port in closed:
        assert not site.ada.reaches(host, port), f"{host}:{port}"
    # There is somebody, whom the other node reaches.
    for port in (API, DATABASE, GATEWAY, site.files_port(site.head)):
        assert site.other.reaches(HEAD, port), port


def test_a_member_works_from_there_and_another_team_sees_nothing_of_it(site: Site) -> None:
    ada, bob = site.ada, site.bob
    ports = {"ports": [30001]}
    path = job(ada, "trains", f"{WRITES} sleep 600", **ports)
    run = ada.json(f"headway submit {path} --node other")["run_id"]
    until(ada, run, "Running")
    follows = subprocess.Popen(
        [*ada.enter(), "headway", "logs", "-f", run],
        env=ada.env, cwd=ada.folder, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert follows.stdout is not None
    uid = int(follows.stdout.readline())
    assert [follows.stdout.readline().strip() for _ in range(2)] == [CANARY, "written"]

    waits = job(ada, "waits", "true", **ports)
    second = ada.json(f"headway submit {waits} --node other")["run_id"]
    wait_for(
        lambda: [each["run_id"] for each in ada.json("headway queue")] == [second],
        lambda: str(ada.json("headway queue")),
    )
    assert "30001" in ada.types(f"headway why {second}").stdout
    assert {each["run_id"] for each in ada.json("headway runs")} == {run, second}

    # What another team is told is what it would be told of a run that never was.
    never = f"{run[:-4]}0000"
    assert bob.json("headway runs") == []
    for command in ("show", "logs", "outputs", "why", "cancel", "retry"):
        told = [bob.types(f"headway {command} {each}", fails=2) for each in (run, never)]
        said, expected = (f"{each.stdout}{each.stderr}" for each in told)
        assert said.replace(run, never) == expected, command
        assert CANARY not in said
    assert run not in json.dumps(bob.json("headway queue"))

    ada.types(f"headway outputs {run} {ada.folder}/fetched")
    assert (ada.folder / "fetched/model.pt").read_text().strip() == CANARY
    for each in (second, run):
        ada.types(f"headway cancel {each}")
        until(ada, each, "Cancelled")
    follows.wait(PATIENCE_S)
    follows.stdout.close()
    # And from the node that it ran on, without a login there.
    assert site.other.json(f"headway show {run}")["state"] == "Cancelled"
    on_disk = site.other.folder / "headway/runs" / run
    look_as_another_user(on_disk, uid)


def look_as_another_user(run: Path, uid: int) -> None:
    """All that the run's program wrote is its team's alone, whoever else looks."""
    wrote = run / "outputs/model.pt"
    assert wrote.stat().st_uid == uid != 0
    for path in (wrote, run / "log/attempt-1.log"):
        tried = ["setpriv", f"--reuid={uid + 1000}", f"--regid={uid + 1000}", "--clear-groups"]
        done = subprocess.run([*tried, "cat", path], capture_output=True, text=True, check=False)
        assert "Permission denied" in done.stderr
        assert CANARY not in done.stdout


def test_a_container_reaches_no_files_no_door_and_no_database(site: Site) -> None:
    """Neither of its own node, nor of the other: only what is no service of the site."""
    files = [site.files_port(machine) for machine in (site.head, site.other)]
    closed = [(HEAD, files[0]), (OTHER, files[1])]
    closed += [(HEAD, port) for port in (GATEWAY, API, DATABASE)]
    tries = " ".join(f"{host}:{port}" for host, port in [*closed, (LAPTOP, FREE)])
    program = f"""\
bridge=$(ip route | sed -n 's/^default via \\([0-9.]*\\) .*/\\1/p')
try() {{ nc -w 3 ${{1%:*}} ${{1#*:}} </dev/null >/dev/null 2>&1 && echo $1; }}
for each in {tries} $bridge:{GATEWAY} $bridge:{files[0]} $bridge:{files[1]}; do try $each & done
wait
echo ${{bridge:+tried}}
"""
    with netns.greeting(site.ada.network, FREE):
        for node in ("head", "other"):
            path = job(site.bob, f"tries-{node}", program)
            run = site.bob.json(f"headway submit {path} --node {node}")["run_id"]
            assert until(site.bob, run, "Completed", "Failed")["state"] == "Completed"
            lines = site.bob.types(f"headway logs {run}").stdout.split()
            assert lines == [f"{LAPTOP}:{FREE}", "tried"], node
