"""The same training as one process and as gangs of containers: do they learn, and start, alike?

A program with the same global batch, on one engine, each node of the site a worker of its own:
losses of every step are compared with those of one process, and weights among the ranks. `torch` is
`samples/ddp/train.py`, the others are below `gang_programs`. Of `torch` then the time from
admission, which is when the lease was granted, to the first collective, beside that of the same
containers with the same environment and limits started by hand, in turns.

    python benchmarks/gang_curves.py [--program torch] [--sizes 2 4] [--runs 3] [--epochs 20]
    python benchmarks/gang_curves.py --shrink [--epochs 60]
    python benchmarks/gang_curves.py --namespaces [--program torch]

With `--shrink` a gang of three nodes loses one in the midst, and goes on from its checkpoint with
two. With `--namespaces` the two nodes are in network namespaces of their own, each with an engine
of its own, and a cable between them; containers have the nodes' own network (root, Linux).

It has to run where scikit-learn and torch, tensorflow-cpu, mpi4py or horovod are installed beside
headway: its image is made of them. For `mpi`, Debian's Open MPI has to be installed, too. Horovod
0.28.1 builds with a current torch where its two lines `CMAKE_CXX_STANDARD 14` say 17.
"""

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.models.containers import Container

from headway.cgroups import cpu_shares
from headway.ledger import Ledger
from headway.model.job_text import job_from_document
from headway.model.trace import Trace
from headway.run.here import container_name
from samples.local_image import build
from tests.support import netns
from tests.support.machines import API, Machine, several_machines, why_none
from tests.support.mpi_image import build_mpi_image
from tests.support.site import ROOT, LiveSite, live_site, wait_for

PATIENCE_S = 900.0
"""For one run: with others beside it, a start of four containers takes minutes."""
BEGINS = re.compile(r"begins behind epoch (\d+) on \d+ processes")
MET = re.compile(r"process 0 of \d+ on \w+ has met the others at (\d+\.\d+)")
CPUS = 0.45
HOROVODRUN = "from horovod.runner.launch import run_commandline; run_commandline()"
"""The program of that name."""
LOST_AT = 5
"""In this epoch a gang loses a node."""
THREADS = {"OMP_NUM_THREADS": "1"}
ALONE = ("RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500")


@dataclass(frozen=True)
class Program:
    """What is trained, and how its parts find each other."""

    launch: str
    path: str
    packages: tuple[str, ...]
    memory: str = "1GiB"
    by_hand: bool = False

    @property
    def image(self) -> str:
        """Name of its image."""
        return f"headway-bench/gang-{self.launch}:local"

    def build(self, docker_host: str | None = None) -> None:
        """Make its image of what is installed here."""
        if self.launch == "mpi":
            build_mpi_image(self.image, self.packages, docker_host)
        else:
            build("python", self.image, packages=self.packages, docker_host=docker_host)

    def command(self, count: int, epochs: int) -> list[str]:
        """Its words in a gang of *count* parts, or alone."""
        words = ["python", "-c", (ROOT / self.path).read_text(), "--epochs", str(epochs)]
        if self.launch == "mpi":
            return ["mpirun", "-n", str(count), *words]
        if self.launch == "horovod" and count > 1:
            told = ["-np", str(count), "--hostfile", "{hosts}", "--disable-cache"]
            return ["python", "-c", HOROVODRUN, *told, *words]
        # No gang, so nobody tells it that it is alone.
        return ["env", *ALONE, *words] if self.launch == "torch" and count == 1 else words


PROGRAMS = {
    "torch": Program("torch", "samples/ddp/train.py", ("torch", "scikit-learn"), by_hand=True),
    "keras": Program(
        "tensorflow",
        "benchmarks/gang_programs/keras_digits.py",
        ("tensorflow-cpu", "scikit-learn"),
        memory="2GiB",
    ),
    "mpi": Program("mpi", "benchmarks/gang_programs/mpi_digits.py", ("mpi4py", "scikit-learn")),
    "horovod": Program(
        "horovod",
        "benchmarks/gang_programs/horovod_digits.py",
        ("horovod", "torch", "scikit-learn"),
    ),
}


@contextmanager
def nodes_of(folder: Path, count: int) -> Iterator[dict[str, LiveSite]]:
    """A site of *count* nodes that share this machine's engine, by name."""
    with ExitStack() as stack:
        head = stack.enter_context(live_site(folder / "node0", "docker", HEADWAY_NODE="node0"))
        found = {"node0": head}
        for number in range(1, count):
            name = f"node{number}"
            env = {"HEADWAY_NODE": name, "PREFECT_API_AUTH_STRING": head.auth()}
            node = found[name] = LiveSite(folder / name, "docker", head.port, **env)
            stack.callback(node.run, "down", "--stop", "--yes")
            server, ledger = f"{head.url}/api", head.ledger_url()
            joined = node.run("node", "join", "--server", server, "--ledger", ledger)
            if joined.returncode:
                raise SystemExit(f"{name} did not join:\n{joined.stdout}{joined.stderr}")
        yield found


def head_of(site: dict[str, LiveSite]) -> LiveSite:
    """Its first node, which has the server."""
    return next(iter(site.values()))


def job(program: Program, count: int, epochs: int, nodes: int | str) -> dict[str, Any]:
    """The job with words for *count* parts."""
    return {
        "name": f"digits-{count}",
        "image": program.image,
        "command": program.command(count, epochs),
        "launch": program.launch,
        "env": THREADS,
        "resources": {"nodes": nodes, "host_memory": program.memory, "cpus": CPUS},
    }


def ended(site: dict[str, LiveSite], run_id: str, patience_s: float) -> tuple[dict[str, Any], Path]:
    """Wait until it has ended well and all is let go; what `show` says, and its folder."""
    head, end_s = head_of(site), time.monotonic() + patience_s
    while (view := head.show(run_id))["state"] not in {"Completed", "Failed", "Cancelled"}:
        if time.monotonic() > end_s:
            break
        time.sleep(1.0)
    if view["state"] != "Completed":
        raise SystemExit(f"{view['state']}: {view['exit']}\n{head.run('logs', run_id).stdout}")
    wait_for(
        lambda: all(not node["runs"] for node in head.json("nodes")),
        lambda: "a lease is left",
    )
    return view, site[view["node"]].home / "runs" / run_id


def train(
    site: dict[str, LiveSite], folder: Path, program: Program, count: int, epochs: int
) -> dict[str, Any]:
    """Train over *count* nodes; its curve, and seconds from the lease to the first collective."""
    head = head_of(site)
    run_id = head.submit(folder, **job(program, count, epochs, count))
    _, home = ended(site, run_id, PATIENCE_S)
    told = MET.search((home / "log/attempt-1.log").read_text())
    sql = "SELECT EXTRACT(EPOCH FROM claimed_at) * 1000 FROM run WHERE run_id = :run_id"
    granted_s = head.count(sql, run_id=run_id) / 1000
    found: dict[str, Any] = json.loads((home / "outputs/curve.json").read_text())
    return found | {"met_s": float(told[1]) - granted_s if told else None}


def shrink(site: dict[str, LiveSite], folder: Path, program: Program, epochs: int) -> None:
    """Train over three nodes, take one away, and say how its losses go on over two."""
    head = head_of(site)
    one = train(site, folder, program, 1, epochs)
    asked = job(program, 2, epochs, "2-3")
    recipe = job_from_document(asked).recipe()
    with closing(Ledger.open(head.ledger_url())) as ledger:  # as if runs had shown that three pay
        for nodes in (2, 3):
            took_s, run_id = 3600.0 / nodes, f"digits-{nodes}"
            ledger.traces.add([
                Trace(recipe, "cpu", 0, None, nodes=nodes, cpus=CPUS, runtime_s=took_s,
                      recipe=recipe, run_id=run_id)
            ])  # fmt: skip
    run_id = head.submit(folder, **asked)

    def is_well_under_way() -> dict[str, Any] | None:
        view = head.show(run_id)
        epoch = (view.get("progress") or {}).get("epoch") or 0
        return view if epoch >= LOST_AT or view["state"] == "Completed" else None

    view = wait_for(is_well_under_way, lambda: str(head.show(run_id)))
    gone = view["ranks"][-1]
    head.run("node", "drain", gone["node"])
    docker.from_env().containers.get(container_name(gone["run_id"], 1)).kill()
    view, home = ended(site, run_id, PATIENCE_S)
    found = json.loads((home / "outputs/curve.json").read_text())
    logs = [home / f"log/attempt-{number + 1}.log" for number in range(view["attempt"])]
    begun = [BEGINS.search(each.read_text()) for each in logs]
    steps = len(found["loss"])
    for each, told in zip(view["attempts"], begun, strict=True):
        epoch = int(told[1]) if told else 0
        at = epoch * steps // epochs
        here = abs(one["loss"][at] - found["loss"][at])
        print(f"{each['size']}, from epoch {epoch + 1} on: its first loss differs by {here:.1e}")
    print(
        f"all {steps} losses differ by {difference(one, found):.1e} at most from those of one "
        f"process that was never stopped, weights equal: {found['weights_equal']}"
    )


def difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest of two curves' losses of the same step."""
    return max(abs(a - b) for a, b in zip(one["loss"], other["loss"], strict=True))


def by_hand(client: docker.DockerClient, network: str, program: Program, count: int) -> float:
    """Start the same containers at once, rank 0 first; seconds to the first collective."""
    began, started = time.time(), list[Container]()
    place = f"by-hand-{os.getpid()}"
    try:
        for rank in range(count):
            numbers = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": 0, "MASTER_PORT": 29500}
            where = {"MASTER_ADDR": place, "HEADWAY_OUTPUTS": "/tmp", "HEADWAY_CHECKPOINT": "/tmp"}
            started += [
                client.containers.run(
                    program.image,
                    program.command(2, 1),
                    environment={**THREADS, **where, **{k: str(v) for k, v in numbers.items()}},
                    name=place if rank == 0 else f"{place}-{rank}",
                    network=network,
                    mem_limit="1g",
                    cpu_shares=cpu_shares(CPUS),
                    detach=True,
                )
            ]
        for each in started:
            each.wait()
        told = MET.search(started[0].logs().decode())
        if told is None:
            raise SystemExit(started[0].logs().decode())
        return float(told[1]) - began
    finally:
        for each in started:
            each.remove(force=True)


@contextmanager
def one_engine(program: Program, count: int) -> Iterator[tuple[dict[str, LiveSite], str]]:
    """A site of *count* nodes on this machine's engine, and the network of its gangs."""
    program.build()
    client = docker.from_env(timeout=300)
    network = client.networks.create(f"headway-bench-{os.getpid()}")
    try:
        with nodes_of(Path(tempfile.mkdtemp(prefix="headway-bench-")), count) as site:
            head_of(site).set_block("headway-container-policy", gang_network=network.name)
            yield site, str(network.name)
    finally:
        network.remove()
        client.close()


class FarSite(LiveSite):
    """A node in a network namespace of its own, as seen from within that."""

    def __init__(self, machine: Machine) -> None:
        told = machine.types("env -0").stdout.split("\0")
        env = dict(each.partition("=")[::2] for each in told if "=" in each)
        super().__init__(Path(env["HEADWAY_HOME"]), "docker", API, **env)

    def ledger_url(self) -> str:
        """Where the environment says that it is."""
        return self.env["HEADWAY_LEDGER_URL"]


@contextmanager
def two_namespaces(program: Program) -> Iterator[dict[str, LiveSite]]:
    """A site of two nodes with a network and an engine each; this thread is at the first one."""
    if reason := why_none():
        raise SystemExit(reason)
    with several_machines(Path(tempfile.mkdtemp(prefix="headway-bench-"))) as made:
        for machine in (made.head, made.other):
            program.build(machine.env["HEADWAY_DOCKER_HOST"])
        site: dict[str, LiveSite] = {"head": FarSite(made.head), "other": FarSite(made.other)}
        with netns.inside(made.head.network):
            head_of(site).set_block("headway-container-policy", gang_network="host")
            yield site


def row(one: dict[str, Any], gangs: list[dict[str, Any]], hands: list[float]) -> dict[str, Any]:
    """What is told of the gangs of one size, beside the same training by *one* process."""
    met = statistics.median(gang["met_s"] for gang in gangs)
    hand = statistics.median(hands) if hands else None
    return {
        "steps": len(one["loss"]),
        "largest_difference": max(difference(one, gang) for gang in gangs),
        "weights_equal": all(gang["weights_equal"] for gang in gangs),
        "met_s": met,
        "by_hand_s": hand,
        "ratio": met / hand if hand else None,
    }


def measure(program: Program, sizes: list[int], runs: int, epochs: int) -> list[dict[str, Any]]:
    """A row for each size."""
    folder, rows = Path(tempfile.mkdtemp(prefix="headway-bench-")), []
    with one_engine(program, max(sizes)) as (site, network), closing(docker.from_env()) as client:
        one = train(site, folder, program, 1, epochs)
        for count in sizes:
            gangs, hands = [], []
            for turn in range(runs):
                gangs.append(train(site, folder, program, count, epochs))
                told = f"{gangs[-1]['met_s']:.2f} s"
                if program.by_hand:
                    hands.append(by_hand(client, network, program, count))
                    told += f", by hand {hands[-1]:.2f} s"
                print(f"{count}, turn {turn + 1}: {told}", file=sys.stderr)
            rows.append({"containers": count, "networks": 1} | row(one, gangs, hands))
    return rows


def measure_apart(program: Program, runs: int, epochs: int) -> list[dict[str, Any]]:
    """The row of two nodes in two namespaces."""
    folder = Path(tempfile.mkdtemp(prefix="headway-bench-"))
    with two_namespaces(program) as site:
        one = train(site, folder, program, 1, epochs)
        gangs = [train(site, folder, program, 2, epochs) for _ in range(runs)]
    return [{"containers": 2, "networks": 2} | row(one, gangs, [])]


def main() -> None:
    """Read the command line, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", choices=PROGRAMS, default="torch")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--json", type=Path)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--shrink", action="store_true", help="lose one node of three (torch)")
    how.add_argument("--namespaces", action="store_true", help="two nodes, a network each")
    options = parser.parse_args()
    program = PROGRAMS[options.program]
    if options.shrink:
        with one_engine(PROGRAMS["torch"], 3) as (site, _):
            shrink(site, Path(tempfile.mkdtemp()), PROGRAMS["torch"], options.epochs)
        return
    if options.namespaces:
        rows = measure_apart(program, options.runs, options.epochs)
    else:
        rows = measure(program, options.sizes, options.runs, options.epochs)
    for each in rows:
        print(
            "{containers} containers in {networks} network(s), {steps} steps: losses differ by "
            "{largest_difference:.1e} at most, weights equal: {weights_equal}; first collective "
            "{met_s:.2f} s after admission".format(**each)
            + (", {by_hand_s:.2f} s by hand: {ratio:.2f} ×".format(**each) if each["ratio"] else "")
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
