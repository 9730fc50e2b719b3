"""Kills and stops of a site's processes at random moments, mended by the site itself."""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil

from headway.clock import SystemClock
from headway.node.daemon import (
    Daemon,
    database_daemon,
    fork_daemon,
    gateway_daemon,
    guard_daemon,
    scheduler_daemon,
    server_daemon,
    supervisor_daemon,
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
    "scheduler": scheduler_daemon,
    "gateway": gateway_daemon,
    "fork server": fork_daemon,
    "supervisor": supervisor_daemon,
}
STOPPED_S = (10.0, 70.0)
ACTORS = ("flow", *DAEMONS)


def running(settings: Settings) -> list[str]:
    """Which of the actors this site has now."""
    return [name for name, daemon in DAEMONS.items() if daemon(settings).process() is not None]


def process_of(settings: Settings, actor: str, chance: random.Random) -> psutil.Process | None:
    """The process of *actor*, of flow processes one by chance; None where there is none."""
    if actor != "flow":
        return DAEMONS[actor](settings).process()
    alive = sorted(LiveFlows(settings.state_dir, SystemClock()).now())
    pid = live_flow(settings.state_dir, chance.choice(alive)) if alive else None
    with suppress(psutil.NoSuchProcess):
        return None if pid is None else psutil.Process(pid)
    return None


def kill(settings: Settings, actor: str, chance: random.Random) -> bool:
    """Kill *actor* now; False where there is none."""
    process = process_of(settings, actor, chance)
    if process is None:
        return False
    with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        # PostgreSQL's immediate stop: it leaves its clients and its files as a crash does.
        process.send_signal(signal.SIGQUIT if actor == "database" else signal.SIGKILL)
        if actor != "flow":
            process.wait(20.0)
    return True


def stop(settings: Settings, actor: str, chance: random.Random, for_s: float) -> bool:
    """Stop *actor* now, and let it go on after a while; False where there is none."""
    process = process_of(settings, actor, chance)
    if process is None:
        return False

    def go_on() -> None:
        with suppress(psutil.NoSuchProcess):  # it was killed for doing nothing
            process.resume()

    with suppress(psutil.NoSuchProcess):
        process.suspend()
    threading.Timer(for_s, go_on).start()
    return True


def until_all_are_back(settings: Settings, actors: Iterable[str]) -> None:
    """Wait until the supervisor has brought every one of *actors* back."""
    wanted = set(actors)
    wait_for(
        lambda: wanted <= set(running(settings)),
        lambda: f"{wanted - set(running(settings))} did not come back",
    )


def kill_while_busy(
    watched: Watched,
    kills: int,
    chance: random.Random,
    say: Callable[[str], None],
    *,
    storm: bool = False,
) -> dict[str, int]:
    """Keep the site busy with short jobs and kill *kills* times; how often each actor was.

    In a *storm* one or two actors at a time, each of which is killed or stopped for a while.
    """
    settings, done = watched.settings, dict.fromkeys(ACTORS, 0)
    had = running(settings)
    actors = ("flow", "flow", *had)
    for number in range(kills):
        for _ in range(2):
            watched.submit(f"busy-{chance.getrandbits(40):x}", chance.uniform(1.0, 6.0))
        time.sleep(chance.uniform(0.0, 3.0))
        for actor in chance.sample(actors, chance.choice((1, 2)) if storm else 1):
            if storm and chance.random() < 0.5:
                done[actor] += stop(settings, actor, chance, chance.uniform(*STOPPED_S))
            else:
                done[actor] += kill(settings, actor, chance)
        say(f"{number + 1} of {kills} kills, {len(watched.runs)} jobs")
        until_all_are_back(settings, had)
    return done
