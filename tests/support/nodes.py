"""Several nodes of one site on this machine: each its own home, worker and stub GPUs."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

from sqlalchemy import create_engine, text

from tests.support.site import LiveSite, free_port


def new_database(server: str) -> str:
    """Address of an empty database on the PostgreSQL at *server*."""
    name = f"ledger_{uuid4().hex}"
    address = f"{server}/postgres".replace("postgresql:", "postgresql+psycopg:")
    engine = create_engine(address, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"{server}/{name}"


@contextmanager
def several_nodes(
    folder: Path, ledger_url: str, nodes: Mapping[str, Mapping[str, str]]
) -> Iterator[dict[str, LiveSite]]:
    """A site of *nodes*, each with its own environment. The first one has the server."""
    head, *others = nodes
    port = free_port()
    sites: dict[str, LiveSite] = {}
    with ExitStack() as stack:
        for name in (head, *others):
            env = {**nodes[name], "HEADWAY_NODE": name}
            if name == head:
                env["HEADWAY_LEDGER_URL"] = ledger_url
            site = sites[name] = LiveSite(folder / name, "process", port, **env)
            stack.callback(site.run, "down", timeout_s=150)
            command = ["up"]
            if name != head:
                api = f"{sites[head].url}/api"
                command = ["node", "join", "--server", api, "--ledger", ledger_url]
            started = site.run(*command, timeout_s=240)
            assert started.returncode == 0, f"{name}: {started.stderr}{started.stdout}"
        yield sites
