"""The same training as one process and as gangs of containers: do they learn, and start, alike?

A program with the same global batch, on one engine, each node of the site a worker of its own:
losses of every step are compared with those of one process, and weights among the ranks. `torch` is
`samples/ddp/train.py`, `keras` and `mpi` are below `gang_programs`. Of `torch` then the time from
admission, which is when the lease was granted, to the first collective, beside that of the same
containers with the same environment and limits started by hand, in turns.

    python benchmarks/gang_curves.py [--program torch] [--sizes 2 4] [--runs 3] [--epochs 20]

It has to run where scikit-learn and torch, tensorflow-cpu or mpi4py are installed beside headway:
its image is made of them. For `mpi`, Debian's Open MPI has to be installed, too.
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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.models.containers import Container

from headway.cgroups import cpu_shares
from samples.local_image import build
from tests.support.mpi_image import build_mpi_image
from tests.support.site import ROOT, LiveSite, live_site, wait_for

MET = re.compile(r"process 0 of \d+ on \w+ has met the others at (\d+\.\d+)")
CPUS = 0.45
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

    def build(self) -> None:
        """Make its image of what is installed here."""
        if self.launch == "mpi":
            build_mpi_image(self.image, self.packages)
        else:
            build("python", self.image, packages=self.packages)

    def command(self, count: int, epochs: int) -> list[str]:
        """Its words in a gang of *count* parts, or alone."""
        words = ["python", "-c", (ROOT / self.path).read_text(), "--epochs", str(epochs)]
        if self.launch == "mpi":
            return ["mpirun", "-n", str(count), *words]
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
            stack.callback(node.run, "down")
            server, ledger = f"{head.url}/api", head.ledger_url()
            joined = node.run("node", "join", "--server", server, "--ledger", ledger)
            if joined.returncode:
                raise SystemExit(f"{name} did not join:\n{joined.stdout}{joined.stderr}")
        yield found


def train(
    site: dict[str, LiveSite], folder: Path, program: Program, count: int, epochs: int
) -> dict[str, Any]:
    """Train over *count* nodes; its curve, and seconds from the lease to the first collective."""
    head = site["node0"]
    run_id = head.submit(
        folder,
        name=f"digits-{count}",
        image=program.image,
        command=program.command(count, epochs),
        launch=program.launch,
        env=THREADS,
        resources={"nodes": count, "host_memory": program.memory, "cpus": CPUS},
    )
    view = head.until(run_id, "Completed", "Failed")
    if view["state"] != "Completed":
        raise SystemExit(f"{count} nodes: {view['exit']}\n{head.run('logs', run_id).stdout}")
    home = site[view["node"]].home / "runs" / run_id
    told = MET.search((home / "log/attempt-1.log").read_text())
    sql = "SELECT EXTRACT(EPOCH FROM claimed_at) * 1000 FROM run WHERE run_id = :run_id"
    granted_s = head.count(sql, run_id=run_id) / 1000
    wait_for(
        lambda: all(not node["runs"] for node in head.json("node", "list")),
        lambda: "a lease is left",
    )
    found: dict[str, Any] = json.loads((home / "outputs/curve.json").read_text())
    return found | {"met_s": float(told[1]) - granted_s if told else None}


def by_hand(client: docker.DockerClient, network: str, program: Program, count: int) -> float:
    """Start the same containers at once, rank 0 first; seconds to the first collective."""
    began, started = time.time(), list[Container]()
    place = f"by-hand-{os.getpid()}"
    try:
        for rank in range(count):
            numbers = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": 0, "MASTER_PORT": 29500}
            where = {"MASTER_ADDR": place, "HEADWAY_OUTPUTS": "/tmp"}
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


def measure(program: Program, sizes: list[int], runs: int, epochs: int) -> list[dict[str, Any]]:
    """A row for each size."""
    client, rows = docker.from_env(timeout=300), []
    program.build()
    network = client.networks.create(f"headway-bench-{os.getpid()}")
    folder = Path(tempfile.mkdtemp(prefix="headway-bench-"))
    try:
        with nodes_of(folder, max(sizes)) as site:
            site["node0"].set_block("headway-container-policy", gang_network=network.name)
            one = train(site, folder, program, 1, epochs)
            for count in sizes:
                gangs, hands = [], []
                for turn in range(runs):
                    gangs.append(train(site, folder, program, count, epochs))
                    told = f"{gangs[-1]['met_s']:.2f} s"
                    if program.by_hand:
                        hands.append(by_hand(client, str(network.name), program, count))
                        told += f", by hand {hands[-1]:.2f} s"
                    print(f"{count}, turn {turn + 1}: {told}", file=sys.stderr)
                met = statistics.median(gang["met_s"] for gang in gangs)
                hand = statistics.median(hands) if hands else None
                rows.append(
                    {
                        "containers": count,
                        "steps": len(one["loss"]),
                        "largest_difference": max(
                            abs(a - b)
                            for gang in gangs
                            for a, b in zip(one["loss"], gang["loss"], strict=True)
                        ),
                        "weights_equal": all(gang["weights_equal"] for gang in gangs),
                        "met_s": met,
                        "by_hand_s": hand,
                        "ratio": met / hand if hand else None,
                    }
                )
    finally:
        network.remove()
        client.close()
    return rows


def main() -> None:
    """Read the command line, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", choices=PROGRAMS, default="torch")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    program = PROGRAMS[options.program]
    rows = measure(program, options.sizes, options.runs, options.epochs)
    for row in rows:
        print(
            "{containers} containers, {steps} steps: losses differ by {largest_difference:.1e} at "
            "most, weights equal: {weights_equal}; first collective {met_s:.2f} s after "
            "admission".format(**row)
            + (", {by_hand_s:.2f} s by hand: {ratio:.2f} ×".format(**row) if row["ratio"] else "")
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
