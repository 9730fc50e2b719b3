"""What one team takes keeps no other from its own."""

import threading

import anyio
import pytest

from headway.node.shares import WHOSE, LoopShares, TeamLimiters, in_thread


async def as_team(team: str, function, *values):
    WHOSE.set(team)
    return await in_thread(function, *values)


def test_a_team_that_has_all_its_threads_keeps_no_other_from_its_own() -> None:
    free = threading.Event()

    async def both() -> int:
        async with anyio.create_task_group() as group:
            for _ in range(200):
                group.start_soon(as_team, "greedy", free.wait)
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(20):
                answer = await as_team("other", lambda: 1)
            running = sum(each.name.startswith("AnyIO") for each in threading.enumerate())
            free.set()
        assert running < 12
        return answer

    try:
        assert anyio.run(both) == 1
    finally:
        free.set()


def test_a_limiter_is_a_teams_own_and_is_forgotten_with_its_last_use() -> None:
    async def used() -> None:
        limiters = TeamLimiters(1)
        WHOSE.set("one")
        async with limiters.own():
            assert limiters.own().available_tokens == 0
            WHOSE.set("other")
            async with limiters.own():
                assert len(limiters) == 2
        assert len(limiters) == 0

    anyio.run(used)


def test_who_has_taken_its_share_waits_and_nobody_else() -> None:
    shares = LoopShares()
    shares.charge("greedy", 100.0, 0.05)
    assert shares.wait_s("greedy", 100.0) == pytest.approx(0.48)
    assert shares.wait_s("other", 100.0) < 0
