"""Several nodes of one site on this machine: each its own home, worker and stub GPUs."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.postgresql import new_database
from tests.support.site import LiveSite, free_port


@contextmanager
def several_nodes(
    folder: Path, server: str, nodes: Mapping[str, Mapping[str, str]]
) -> Iterator[dict[str, LiveSite]]:
    """A site of *nodes* on the PostgreSQL *server*, each with its own environment.

    The first one has the Prefect server.
    """
    ledger_url = new_database(server)
    head, *others = nodes
    port = free_port()
    sites: dict[str, LiveSite] = {}
    with ExitStack() as stack:
        for name in (head, *others):
            env = {**nodes[name], "HEADWAY_NODE": name}
            if name == head:
                env["HEADWAY_LEDGER_URL"] = ledger_url
                env["HEADWAY_SERVER_DATABASE_URL"] = new_database(server)
            site = sites[name] = LiveSite(folder / name, "process", port, **env)
            stack.callback(site.run, "down", timeout_s=150)
            command = ["up"]
            if name != head:
                api = f"{sites[head].url}/api"
                command = ["node", "join", "--server", api, "--ledger", ledger_url]
            started = site.run(*command, timeout_s=240)
            assert started.returncode == 0, f"{name}: {started.stderr}{started.stdout}"
        yield sites
