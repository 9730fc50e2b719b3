"""Kills of a site's processes at random moments, each brought back by the site itself."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil

from headway.clock import SystemClock
from headway.node.daemon import (
    Daemon,
    database_daemon,
    guard_daemon,
    server_daemon,
    worker_daemon,
)
from headway.node.flowlock import LiveFlows, live_flow
from headway.settings import Settings
from tests.support.promises import Watched
from tests.support.site import wait_for

DAEMONS: dict[str, Callable[[Settings], Daemon]] = {
    "worker": worker_daemon,
    "server": server_daemon,
    "guard": guard_daemon,
    "database": database_daemon,
}
ACTORS = ("flow", *DAEMONS)


def running(settings: Settings) -> list[str]:
    """Which of the actors this site has now."""
    return [name for name, daemon in DAEMONS.items() if daemon(settings).process() is not None]


def kill(settings: Settings, actor: str, chance: random.Random) -> bool:
    """Kill *actor* now, a flow process by chance; False where there is none."""
    if actor == "flow":
        alive = sorted(LiveFlows(settings.state_dir, SystemClock()).now())
        pid = live_flow(settings.state_dir, chance.choice(alive)) if alive else None
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return True
    process = DAEMONS[actor](settings).process()
    if process is None:
        return False
    # PostgreSQL's immediate stop: it leaves its clients and its files as a crash does.
    process.send_signal(signal.SIGQUIT if actor == "database" else signal.SIGKILL)
    with suppress(psutil.TimeoutExpired):
        process.wait(20.0)
    return True


def until_all_are_back(settings: Settings, actors: Iterable[str]) -> None:
    """Wait until the supervisor has brought every one of *actors* back."""
    wanted = set(actors)
    wait_for(
        lambda: wanted <= set(running(settings)),
        lambda: f"{wanted - set(running(settings))} did not come back",
    )


def kill_while_busy(
    watched: Watched, kills: int, chance: random.Random, say: Callable[[str], None]
) -> dict[str, int]:
    """Keep the site busy with short jobs and kill *kills* times; how often each actor was."""
    settings, done = watched.settings, dict.fromkeys(ACTORS, 0)
    had = running(settings)
    actors = ("flow", "flow", *had)
    for number in range(kills):
        for _ in range(2):
            watched.submit(f"busy-{chance.getrandbits(40):x}", chance.uniform(1.0, 6.0))
        time.sleep(chance.uniform(0.0, 3.0))
        actor = chance.choice(actors)
        if kill(settings, actor, chance):
            done[actor] += 1
        say(f"{number + 1} of {kills} kills, {len(watched.runs)} jobs")
        until_all_are_back(settings, had)
    return done
