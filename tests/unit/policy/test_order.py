from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidInput
from headway.policy.fit import Ask
from headway.policy.order import (
    DecayedUsage,
    bands,
    due_first,
    first_come_wait_s,
    interval_usage,
    waited_long,
)
from headway.policy.settings import PolicySettings, TeamSettings
from headway.replay.queue import ReplayQueue
from headway.units import HOUR_S
from tests.unit.policy.boards import ask


def names(asks: list[Ask], settings: PolicySettings, usage: dict[str, float]) -> list[str]:
    return [one.run_id for one in due_first(asks, bands(usage, settings), settings)]


def test_priority_then_share_then_work() -> None:
    asks = [
        ask("long", team="poor", runtime_s=1000),
        ask("short", team="poor", runtime_s=10),
        ask("rich", team="rich", runtime_s=1),
        ask("urgent", team="rich", runtime_s=5000, priority=1),
    ]
    order = names(asks, PolicySettings(), {"poor": 10.0, "rich": 90.0})
    assert order == ["urgent", "short", "long", "rich"]


def test_weights_count() -> None:
    settings = PolicySettings(teams={"rich": TeamSettings(weight=9.0)})
    assert bands({"poor": 10.0, "rich": 90.0}, settings) == {"poor": 0, "rich": 0}
    assert bands({"poor": 0.0, "rich": 0.0}, settings) == {"poor": 0, "rich": 0}


def test_ageing_is_by_stretch() -> None:
    settings = PolicySettings(patience=2.0)
    old = ask("old", runtime_s=100, submitted_s=0)
    assert names([ask("new", runtime_s=10, submitted_s=179), old], settings, {}) == ["new", "old"]
    assert names([ask("new", runtime_s=10, submitted_s=181), old], settings, {}) == ["old", "new"]


def test_who_was_overtaken_too_often_goes_first_within_his_priority() -> None:
    settings = PolicySettings(overtake_limit=5)
    asks = [
        ask("new", runtime_s=1),
        ask("due", runtime_s=1e6, overtaken=5),
        ask("urgent", runtime_s=1e6, priority=1),
    ]
    assert names(asks, settings, {}) == ["urgent", "due", "new"]


def test_the_wait_of_a_line_without_order_counts_what_waits_and_what_runs() -> None:
    assert first_come_wait_s(400.0, [(2, 150.0), (1, 90.0)], 4, 100.0) == 125.0
    assert first_come_wait_s(0.0, [], 0, 100.0) == 0.0


LONG = PolicySettings(long_wait=0.5, longest_wait=2.0, yield_frac=0.1)


def long_waited(*line: Ask, first_come_s: float = 100.0, now_s: float = 1000.0) -> list[str]:
    return [one.run_id for one in waited_long(line, first_come_s, now_s, LONG)]


def test_who_has_waited_long_goes_first_within_his_priority() -> None:
    old = ask("old", submitted_s=949, runtime_s=1e6)
    assert long_waited(old) == ["old"]
    assert long_waited(ask("old", submitted_s=951, runtime_s=1e6)) == []
    old.long_waited = True
    asks = [ask("new", runtime_s=1, submitted_s=990), old, ask("urgent", priority=1)]
    assert names(asks, LONG, {}) == ["urgent", "old", "new"]


def test_who_has_waited_long_yields_to_much_smaller_ones_that_wait_for_him() -> None:
    old = ask("old", submitted_s=900, runtime_s=1000)
    assert long_waited(old, ask("waits", submitted_s=989, runtime_s=99), first_come_s=150) == []
    for other in (
        ask("fresh", submitted_s=991, runtime_s=99),
        ask("large", submitted_s=989, runtime_s=101),
    ):
        assert long_waited(old, other, first_come_s=150) == ["old"]
    # Not for ever.
    assert long_waited(
        ask("old", submitted_s=700, runtime_s=1000),
        ask("waits", submitted_s=950, runtime_s=99),
        first_come_s=150,
    ) == ["old"]


def test_no_more_of_the_line_is_looked_at_than_stated() -> None:
    settings = PolicySettings(window=4)
    seen = []

    def line() -> Iterator[Ask]:
        for at in range(1000):
            seen.append(at)
            yield ask(f"{at:04d}", submitted_s=0, runtime_s=1)

    assert len(waited_long(line(), 1.0, 1000.0, settings)) == 4
    assert len(seen) == 32


def test_usage_halves_with_each_half_life() -> None:
    usage = DecayedUsage(HOUR_S)
    usage.change("a", 2.0, 0.0)
    usage.change("a", -2.0, 1000.0)
    before = interval_usage(2.0, 0.0, 1000.0, 1000.0, HOUR_S)
    assert usage.used["a"] == pytest.approx(before)
    assert before == pytest.approx(2000.0, rel=0.1)
    usage.advance(1000.0 + HOUR_S)
    assert usage.used["a"] == pytest.approx(before / 2)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 1000), st.sampled_from(["a", "b", "c"]), st.booleans(), st.booleans()
        ),
        max_size=60,
    )
)
def test_the_kept_line_and_the_sorted_rows_agree(
    rows: list[tuple[int, str, bool, bool]],
) -> None:
    settings = PolicySettings(window=5, overtake_limit=4, overtake_bound=6)
    usage = {"a": 5.0, "b": 50.0, "c": 300.0}
    line, waiting = ReplayQueue(settings), []
    counted: dict[str, int] = {}
    for at, (runtime_s, team, urgent, leaves) in enumerate(rows):
        one = ask(f"{at:03d}", submitted_s=at, runtime_s=runtime_s, team=team, priority=urgent)
        line.add(one)
        waiting.append(one)
        if leaves:
            gone = line.front(usage)[0]
            line.remove(gone)
            waiting.remove(gone)
            for other in waiting:
                later = other.submitted_s < gone.submitted_s
                counted[other.run_id] = counted.get(other.run_id, 0) + (
                    later and other.priority == gone.priority
                )
    front = line.front(usage)
    for other in waiting:
        other.overtaken = counted.get(other.run_id, 0)
    assert front == due_first(waiting, bands(usage, settings), settings)[:5]


@pytest.mark.parametrize(
    ("name", "value"),
    [("window", 0), ("utilisation_limit", 0.0), ("fair_share_step", 1.0), ("patience", -1.0),
     ("overtake_bound", 1), ("long_wait", -1.0), ("yield_frac", float("nan")),
     ("overrun_frac", float("nan"))],
)  # fmt: skip
def test_a_knob_that_makes_no_sense_is_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=name):
        PolicySettings(**{name: value})
