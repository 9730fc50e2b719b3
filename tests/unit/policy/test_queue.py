"""The queue: who is due, then the virtual order; tags and promises are given once."""

import pytest

from headway.policy.fit import Ask
from headway.policy.settings import PolicySettings
from tests.unit.policy.boards import ask, queue


def names(asks: list[Ask]) -> list[str]:
    return [one.run_id for one in asks]


def test_priority_then_who_is_due_then_short_work() -> None:
    line = queue(
        ask("long", runtime_s=1000, promised_s=500.0),
        ask("short", runtime_s=10, promised_s=501.0),
        ask("urgent", runtime_s=5000, priority=1, promised_s=900.0),
    )
    assert names(line.front(400.0)) == ["urgent", "short", "long"]
    assert names(line.front(500.0)) == ["urgent", "long", "short"]


def test_several_who_are_due_go_by_their_promises() -> None:
    line = queue(
        ask("second", runtime_s=1, promised_s=20.0), ask("first", runtime_s=9, promised_s=10.0)
    )
    assert names(line.front(100.0)) == ["first", "second"]


def test_a_promise_is_all_work_before_and_its_own_times_the_factor() -> None:
    line = queue(settings=PolicySettings(promise_factor=2.0), gpus=4)
    line.add_running(running := ask("runs", gpus=2, whole=True, runtime_s=100), 140.0)
    one, two = (ask(name, whole=True, gpus=4, runtime_s=50) for name in ("one", "two"))
    line.add(one, 100.0)
    line.add(two, 100.0)
    # 40 s on two of four GPUs are left of the run; then comes what waits, and the own work.
    assert one.promised_s == pytest.approx(100.0 + 2 * (20.0 + 50.0))
    assert two.promised_s == pytest.approx(100.0 + 2 * (20.0 + 50.0 + 50.0))
    line.start(one, 150.0)
    line.end(running)
    assert names(line.front(100.0)) == ["two"]


def test_a_promise_counts_who_has_and_who_waits_for_the_same_port() -> None:
    line = queue(settings=PolicySettings(promise_factor=1.0), gpus=4)
    line.totals = line.totals._replace(same_port=2)
    port = frozenset({6006})
    line.add_running(ask("runs", gpus=0, ports=port, runtime_s=100), 140.0)
    one, two, other = (
        ask(name, gpus=0, ports=ports, runtime_s=50)
        for name, ports in (("one", port), ("two", port), ("other", frozenset({8080})))
    )
    for each in (one, two, other):
        line.add(each, 100.0)
    assert one.promised_s == pytest.approx(100.0 + 20.0 + 25.0)
    assert two.promised_s == pytest.approx(100.0 + 20.0 + 25.0 + 25.0)
    assert other.promised_s == pytest.approx(100.0 + 25.0)


def test_nothing_is_promised_while_its_quota_holds_it() -> None:
    line = queue()
    held = ask("held")
    line.add(held, 5.0, may_start=False)
    assert (held.promised_s, held.tag) == (None, 100.0)
    assert names(line.front(1e9)) == ["held"]


def test_who_comes_back_keeps_tag_and_promise() -> None:
    line = queue(ask("other", runtime_s=1000, promised_s=1e9))
    back = ask("back", tag=7.0, promised_s=2e9)
    line.add(back, 500.0)
    assert (back.tag, back.promised_s) == (7.0, 2e9)
    assert names(line.front(500.0))[0] == "back"


def test_no_more_than_the_window() -> None:
    line = queue(*(ask(f"{at}", runtime_s=at + 1) for at in range(9)), window=3)
    assert names(line.front(0.0)) == ["0", "1", "2"]
