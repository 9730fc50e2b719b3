"""A node's guard as a process of its own, without a site around it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headway.site import Site


@contextmanager
def guard_process(site: Site, *within: str) -> Iterator[subprocess.Popen[bytes]]:
    """The guard of *site*'s node, as `headway up` starts it.

    Args:
        site: Its settings are handed to the process.
        within: A command that runs another one, such as ``ip netns exec NAME``.
    """
    settings = site.settings
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "HEADWAY"))}
    env = clean | {
        "HEADWAY_HOME": str(settings.home),
        "HEADWAY_NODE": settings.node,
        "HEADWAY_RUNTIME": settings.runtime,
        "HEADWAY_LEDGER_URL": settings.database_url,
        "HEADWAY_LEASE_TTL_S": str(settings.lease_ttl_s),
    }
    command = [*within, sys.executable, "-m", "headway.node.guard"]
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    with (settings.state_dir / "guard.log").open("ab") as log:
        guard = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        yield guard
    finally:
        guard.kill()
        guard.wait()
