"""Whether the kernel killed something in a container for want of memory, where the engine forgot.

The engine keeps it with the container's exit. Where a program ends the moment that one of its
processes was killed, the news of the kill may come after that of the exit: the state then says
no (measured: 1 of 160 under load), while the engine's events have it.
"""

from datetime import datetime, timedelta

import docker

_LATE = timedelta(seconds=0.3)
"""So long after an exit the engine is still asked for news of before; measured: milliseconds."""


def was_killed(
    api: docker.APIClient, container: str, started_at: datetime, ended_at: datetime
) -> bool:
    """Whether the engine's events tell of a kill in *container*; waits for them for a moment.

    Args:
        api: The engine.
        container: Id of the container.
        started_at: When it was started.
        ended_at: When it ended.
    """
    told = api.events(  # type: ignore[call-overload]  # parts of a second work, as text
        since=_seconds(started_at),
        until=_seconds(ended_at + _LATE),
        filters={"container": container, "event": "oom"},
        decode=True,
    )
    return next(iter(told), None) is not None


def _seconds(moment: datetime) -> str:
    return f"{moment.timestamp():.6f}"
