"""Two nodes and a laptop, each a network of its own; a site set up there by the documents' lines.

`head` has server, gateway, ledger and a node, `other` the second node, and each an engine. The
laptop's way leads to `head` alone, where packet rules leave it the gateway's port.
"""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from headway.clock import SystemClock
from headway.node.certificate import CertificateFiles, keep_self_signed
from samples.local_image import BUSYBOX, build
from tests.support import dockerd, netns, postgresql
from tests.support.site import BIN, PATIENCE_S, ROOT, let_through

HEAD, OTHER, SITE = "10.8.0.1", "10.8.0.2", "10.8.0.0/24"
DOOR, LAPTOP = "192.0.2.1", "192.0.2.2"
NAME = "gpus.example.org"
API, DATABASE, GATEWAY, FREE = 4200, 5432, 4280, 8002
PAGE = (ROOT / "docs/operating.md").read_text()
MEMBERS = (ROOT / "docs/first-job.md").read_text()
BLOCK = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
TOKEN = re.compile(r"hwt_[\w-]+")


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
    (rule,) = re.findall(r"`(hostssl headway,prefect all .*?)`", PAGE)
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
    blocks = written("## Several machines", "## Nodes")
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
    printed = site.head.types("headway node add other").stdout.splitlines()[-1]
    assert printed.startswith(join.strip().partition(" --ledger ")[0].replace("NAME", "other"))
    site.other.types(f"PREFECT_API_AUTH_STRING={secret} {printed}")
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


def why_none() -> str | None:
    """Why no such site can be had on this machine; None where it can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and iproute2"
    return postgresql.why_none() or dockerd.why_none()


@contextmanager
def several_machines(folder: Path) -> Iterator[Site]:
    """The site, up, with a user of each of two teams who has logged in on a laptop of theirs."""
    let_through(folder)
    with ExitStack() as stack:
        made, certificate = machines(stack, folder)
        for machine in (made.head, made.other):
            stack.callback(machine.types, "headway down --stop --yes")
        set_up(made, certificate)
        log_in(made)
        yield made
