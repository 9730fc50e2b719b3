"""Several nodes of one site on this machine: each its own home, worker and stub GPUs."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headway.units import GIB
from tests.nvml.stub import StubGpus, build_stub
from tests.support.postgresql import new_database
from tests.support.site import LiveSite, free_port, wait_for


@dataclass(frozen=True)
class StubNode:
    """A node with GPUs of one kind, named GPU-<node>-<number>."""

    gpus: int
    product: str = "NVIDIA A100"
    gib: int = 40
    env: Mapping[str, str] = field(default_factory=dict)


_HERE = {"HEADWAY_ADDRESS": "127.0.0.1"}
KINDS = {
    "head": StubNode(2, "NVIDIA A100-SXM4-40GB", 40, env=_HERE),
    "left": StubNode(2, "Tesla V100-SXM2-16GB", 16, env=_HERE),
    "middle": StubNode(2, "NVIDIA H100 80GB HBM3", 80, env=_HERE),
}
"""A node of each kind."""


@contextmanager
def several_nodes(
    folder: Path, server: str, nodes: Mapping[str, StubNode], **more: str
) -> Iterator[dict[str, LiveSite]]:
    """A site of *nodes* on the PostgreSQL *server*, once all of them have reported.

    The first one has the Prefect server; each other one a login of its own in the ledger. Each has
    *more* in its environment.
    """
    ledger_url = new_database(server)
    library = build_stub(folder)
    head, *others = nodes
    port = free_port()
    sites: dict[str, LiveSite] = {}

    def come_up(name: str, *command: str, **its: str) -> None:
        node = nodes[name]
        stub = StubGpus(folder / f"{name}.gpus")
        for number in range(node.gpus):
            stub.add(f"GPU-{name}-{number}", name=node.product, total=node.gib * GIB)
        env = {**more, **node.env, **stub.environment(library), "HEADWAY_NODE": name, **its}
        site = sites[name] = LiveSite(folder / name, "process", port, **env)
        stack.callback(site.run, "down", "--stop", "--yes")
        started = site.run(*command)
        assert started.returncode == 0, f"{name}: {started.stderr}{started.stdout}"

    with ExitStack() as stack:
        own = {
            "HEADWAY_LEDGER_URL": ledger_url,
            "HEADWAY_SERVER_DATABASE_URL": new_database(server),
        }
        come_up(head, "up", **own)
        join = ("node", "join", "--server", f"{sites[head].url}/api", "--ledger")
        logins = {name: sites[head].json("node", "add", name)["ledger"] for name in others}
        known = {"PREFECT_API_AUTH_STRING": sites[head].auth(), **sites[head].at_the_gateway()}
        with ThreadPoolExecutor() as beside:
            # Elsewhere the port at which a server of its own would be is another machine's.
            list(
                beside.map(
                    lambda name: come_up(
                        name, *join, logins[name], **known, HEADWAY_PORT=str(free_port())
                    ),
                    others,
                )
            )
        wait_for(
            lambda: len(sites[head].json("nodes")) == len(nodes),
            lambda: f"only {sites[head].json('nodes')}",
        )
        yield {name: sites[name] for name in nodes}
