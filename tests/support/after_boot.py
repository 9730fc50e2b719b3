"""What a node does first in another boot: `python -m tests.support.after_boot HOME RUN`."""

import sys
import time
from pathlib import Path

from headway.clock import SystemClock
from headway.node.janitor import Janitor
from headway.policy.reconcile import Action
from headway.settings import Settings
from headway.site import Site
from headway.telemetry.host import boot_id
from headway.this_node import join_site
from tests.support.flow_process import follow


def main(home: Path, run_id: str) -> None:
    """Join, and look after the run until its first attempt is over."""
    begun_s = time.monotonic()
    SystemClock.boottime_s = lambda _: time.monotonic() - begun_s  # type: ignore[method-assign]
    settings = Settings(home=home, runtime="process", node="here")
    site = Site(settings, SystemClock())
    join_site(site)
    janitor = Janitor(site)
    for _ in range(10):
        runs = janitor.unsettled([run_id])
        done = janitor.round(runs, frozenset())
        janitor.wait_for_stops()
        run = site.ledger.runs.get(run_id)
        if run.attempt > 1 and site.ledger.leases.of_run(run_id) is None:
            break
        if run.attempt == 1 and Action.START_FLOW in {each.action for each in done}:
            follow(settings, run_id)
    print(boot_id())
    site.ledger.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
