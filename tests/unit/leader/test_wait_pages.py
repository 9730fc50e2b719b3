"""What the worker writes onto the pages of runs that wait, and what it calls them."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.utilities.names import generate_slug

from headway.leader import wait_pages
from headway.leader.names import is_made_up
from headway.leader.wait_pages import WaitPages
from headway.worker.pool import PrefectPool
from tests.ports.clock import FakeClock

RUN, OTHER = (str(UUID(int=at)) for at in (1, 2))


class Prefect:
    """What Prefect's client does here, in memory."""

    def __init__(self) -> None:
        self.artifacts: dict[UUID, tuple[str, str]] = {}
        self.logs: list[tuple[str, str]] = []
        self.broken: set[str] = set()
        """Runs of which the server takes no artifact."""
        self.states: dict[str, str] = {}
        self.started: set[str] = set()
        self.changed: set[str] = set()
        """Runs whose state is another one as soon as it was read."""
        self.away = False

    async def read_flow_runs(self, flow_run_filter: Any) -> list[Any]:
        return [
            SimpleNamespace(
                id=run_id, next_scheduled_start_time=None, state=SimpleNamespace(id="seen")
            )
            for run_id in flow_run_filter.id.any_
            if str(run_id) not in self.started
        ]

    async def read_flow_run(self, run_id: UUID) -> Any:
        now = "another" if str(run_id) in self.changed else "seen"
        return SimpleNamespace(id=run_id, state=SimpleNamespace(id=now))

    async def set_flow_run_state(self, run_id: UUID, state: Any, *, force: bool) -> None:
        assert force
        self.states[str(run_id)] = f"{state.name}: {state.message}"

    async def create_logs(self, logs: Any) -> None:
        if self.away:
            raise httpx.ConnectError("away")
        self.logs += [(str(each.flow_run_id), each.message) for each in logs]

    async def read_artifacts(self, artifact_filter: Any) -> list[Any]:
        wanted = {str(each) for each in artifact_filter.flow_run_id.any_}
        return [
            SimpleNamespace(id=made, flow_run_id=run_id)
            for made, (run_id, _) in self.artifacts.items()
            if run_id in wanted
        ]

    async def create_artifact(self, artifact: Any) -> Any:
        if str(artifact.flow_run_id) in self.broken:
            asked = httpx.Request("POST", "http://site/api")
            raise httpx.HTTPStatusError("503", request=asked, response=httpx.Response(503))
        made = uuid4()
        self.artifacts[made] = (str(artifact.flow_run_id), artifact.data)
        return SimpleNamespace(id=made)

    async def update_artifact(self, made: UUID, artifact: Any) -> None:
        self.artifacts[made] = (self.artifacts[made][0], artifact.data)


@pytest.fixture
def prefect() -> Prefect:
    return Prefect()


def pages_of(prefect: Any, elsewhere: frozenset[str] = frozenset()) -> WaitPages:
    async def waits(run_id: str) -> bool:
        return run_id not in elsewhere

    return WaitPages(prefect, PrefectPool(prefect, "gpu"), FakeClock(), waits)


def write(pages: WaitPages) -> None:
    asyncio.run(pages.write())


def test_a_reason_is_a_line_when_it_is_news_and_always_the_one_artifact(prefect: Prefect) -> None:
    pages = pages_of(prefect)
    pages.say(RUN, "needs 2 CPUs; number 1 in the queue", logged=True)
    write(pages)
    pages.say(RUN, "needs *2* CPUs; number 2 in the queue", logged=False)
    write(pages)
    assert prefect.logs == [(RUN, "waits: needs 2 CPUs; number 1 in the queue")]
    assert prefect.states == {RUN: "AwaitingHeadroom: needs *2* CPUs; number 2 in the queue"}
    (text,) = prefect.artifacts.values()
    assert text[1].startswith(
        "**It waits:** needs \\*2\\* CPUs; number 2 in the queue.\n\nSaid at "
    )


def test_what_would_help_is_below_the_reason_without_another_state_and_goes_with_it(
    prefect: Prefect,
) -> None:
    pages = pages_of(prefect)
    pages.explain(RUN, "\n8 GiB less: now\n")
    write(pages)
    assert prefect.artifacts == {}, "why it waits was not said yet"
    pages.say(RUN, "needs 2 CPUs", logged=True)
    write(pages)
    prefect.states.clear()
    for is_news in (True, False):
        pages.explain(RUN, "\n8 GiB less: now\n")
        assert pages.news.is_set() is is_news
        write(pages)
    (text,) = (text for _, text in prefect.artifacts.values())
    assert text.startswith("**It waits:** needs 2 CPUs.")
    assert text.endswith(f"\n8 GiB less: now\n\nAt the gateway: [its page](/headway#/runs/{RUN})\n")
    assert (prefect.states, len(prefect.logs)) == ({}, 1)
    pages.over(RUN)
    write(pages)
    (text,) = (text for _, text in prefect.artifacts.values())
    assert "waits no more" in text
    assert "8 GiB less" not in text


def test_another_worker_goes_on_with_the_artifact_of_before(prefect: Prefect) -> None:
    for reason in ("needs 2 CPUs", "needs 4 CPUs"):
        pages = pages_of(prefect)
        pages.say(RUN, reason, logged=False)
        write(pages)
    (text,) = prefect.artifacts.values()
    assert "needs 4 CPUs" in text[1]


def test_an_artifact_does_not_go_on_saying_that_a_run_waits(prefect: Prefect) -> None:
    pages = pages_of(prefect)
    pages.say(RUN, "needs 2 CPUs", logged=False)
    write(pages)
    for run_id in (RUN, OTHER):  # the other one never waited
        pages.over(run_id)
    write(pages)
    (text,) = prefect.artifacts.values()
    assert text[1].startswith("It waits no more")


def test_what_could_not_be_written_is_written_when_the_server_is_back(prefect: Prefect) -> None:
    pages = pages_of(prefect)
    pages.say(RUN, "needs 2 CPUs", logged=True)
    prefect.away = True
    with pytest.raises(httpx.ConnectError):
        write(pages)
    prefect.away = False
    assert pages.news.is_set()
    write(pages)
    assert (len(prefect.logs), len(prefect.artifacts)) == (1, 1)


def test_a_page_that_the_server_fails_with_keeps_no_other_from_its_own(prefect: Prefect) -> None:
    pages = pages_of(prefect)
    for run_id in (RUN, OTHER):
        pages.say(run_id, "needs 2 CPUs", logged=True)
    prefect.broken = {RUN}
    for _ in range(3):
        with pytest.raises(httpx.HTTPStatusError):
            write(pages)
    assert [run_id for run_id, _ in prefect.artifacts.values()] == [OTHER]
    prefect.broken = set()
    write(pages)
    assert {run_id for run_id, _ in prefect.artifacts.values()} == {RUN, OTHER}
    assert len(prefect.logs) == 2  # each once
    assert not pages.news.is_set()


def test_a_run_that_has_started_is_not_said_to_wait(prefect: Prefect) -> None:
    prefect.started = {RUN}
    pages = pages_of(prefect, elsewhere=frozenset({OTHER}))
    for run_id in (RUN, OTHER):  # the other one was granted a place: its state is left alone
        pages.say(run_id, "needs 2 CPUs", logged=True)
    write(pages)
    assert prefect.states == {}
    assert [run_id for run_id, _ in prefect.artifacts.values()] == [OTHER]


def test_no_state_is_written_over_a_claim_of_another_node_or_what_a_user_did(
    prefect: Prefect,
) -> None:
    """Prefect would take it: a run that runs would be claimable, one that was cancelled alive."""
    pages = pages_of(prefect, elsewhere=frozenset({RUN}))
    prefect.changed = {OTHER}
    for run_id in (RUN, OTHER):
        pages.say(run_id, "needs 2 CPUs", logged=False)
    write(pages)
    assert prefect.states == {}


def test_news_of_many_runs_is_written_in_parts(prefect: Prefect) -> None:
    pages = pages_of(prefect)
    for at in range(60):
        pages.say(str(UUID(int=at)), "needs 2 CPUs", logged=False)
    written = []
    while pages.news.is_set():
        write(pages)
        written.append(len(prefect.states))
    assert written == [wait_pages.RUNS_AT_ONCE, 2 * wait_pages.RUNS_AT_ONCE, 60]


def test_the_runs_that_are_planned_for_come_first_and_the_others_have_the_state_alone(
    prefect: Prefect,
) -> None:
    pages = pages_of(prefect)
    many = [str(UUID(int=at)) for at in range(100, 100 + wait_pages.RUNS_AT_ONCE)]
    for run_id in many:
        pages.say(run_id, "64 runs are ahead of it", logged=False, planned=False)
    pages.say(RUN, "needs 2 CPUs", logged=False)
    write(pages)
    assert RUN in prefect.states
    write(pages)
    assert prefect.states.keys() == {RUN, *many}
    assert [run_id for run_id, _ in prefect.artifacts.values()] == [RUN]
    pages.say(many[0], "needs 2 CPUs", logged=False)
    write(pages)
    assert [run_id for run_id, _ in prefect.artifacts.values()] == [RUN, many[0]]


def test_a_line_of_the_log_that_was_not_written_yet_is_not_lost(prefect: Prefect) -> None:
    pages = pages_of(prefect)
    pages.say(RUN, "needs 2 CPUs", logged=True)
    pages.say(RUN, "needs 3 CPUs", logged=False)
    write(pages)
    assert prefect.logs == [(RUN, "waits: needs 3 CPUs")]


def test_names_that_prefect_makes_up_are_told_from_those_that_people_give() -> None:
    assert all(is_made_up(generate_slug(2)) for _ in range(200))
    for name in (
        "mnist-bert",
        "digits",
        "big-run",
        "blue-green",
        "vague-kakapo-2",
        "",
        "-",
        "vague-",
    ):
        assert not is_made_up(name)
