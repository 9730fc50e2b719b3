"""Who is over its grant is ended after a while, by more than one reading."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from headway.clock import SystemClock
from headway.model.lease import Fence, GpuGrant, Lease, Sharing
from headway.model.node import Capacity, Gpu, GpuProcess, GpuReading, HostReading, Node, NodeReading
from headway.model.run_warning import RunWarning, Silent, SilentFailure
from headway.run.upkeep import GrantWatch, OverGrants, SilentCheck
from headway.runtime.port import Usage

AT = datetime(2026, 1, 1, tzinfo=UTC)


class HandClock(SystemClock):
    at_s = 0.0

    def monotonic_s(self) -> float:
        return self.at_s


def lease(run_id: str, sharing: Sharing = Sharing.SHARED) -> Lease:
    grants = (GpuGrant("GPU-0", 40, sharing),)
    return Lease(1, run_id, 1, "n", "t", 1, 1.0, grants, {}, AT, AT)


class Bench:
    """A GPU that two runs share, and the watch of one of them."""

    def __init__(self, own: Lease) -> None:
        self.clock = HandClock()
        self._node = Node("n", "gpu", Capacity(1.0, 1, (Gpu("GPU-0", 0, "H100", 80),)))
        self.held, self.read_s = 60, 0.0
        self.told: list[SilentFailure] = []
        """The run's warnings that go on."""
        ledger = SimpleNamespace(
            leases=SimpleNamespace(live=lambda _: [own, lease("innocent")]),
            warnings=SimpleNamespace(keep=self._keep),
        )
        site = SimpleNamespace(ledger=ledger, clock=self.clock)
        self.found = OverGrants()
        self._watch = GrantWatch(site, own, self.found)  # type: ignore[arg-type]

    def _keep(
        self, fence: Fence, found: Sequence[SilentFailure], *, kinds: Sequence[Silent]
    ) -> tuple[list[RunWarning], list[RunWarning]]:
        assert (fence.run_id, kinds) == ("greedy", (Silent.OVER_GRANT,))
        self.told = list(found)
        return [], []

    def _record(self) -> SimpleNamespace:
        processes = (GpuProcess(1, self.held, "greedy"), GpuProcess(2, 10, "innocent"))
        seen = GpuReading("GPU-0", 0, "H100", 80, self.held + 10, processes=processes)
        at = AT + timedelta(seconds=self.read_s)
        return SimpleNamespace(
            node=self._node, reading=NodeReading(at, HostReading(1, 0, 0.0, 1), (seen,))
        )

    def ends(self, at_s: float, *, read_s: float) -> bool:
        self.clock.at_s, self.read_s = at_s, read_s
        return bool(self._watch.verdict(self._record()))  # type: ignore[arg-type]


def test_it_has_to_last_and_to_be_read_again() -> None:
    bench = Bench(lease("greedy"))
    assert not bench.ends(0.0, read_s=0.0)
    assert not bench.ends(60.0, read_s=0.0)  # the agent has not looked since
    assert not bench.ends(61.0, read_s=2.0)  # nor for long
    assert bench.ends(62.0, read_s=5.0)


def test_it_counts_anew_where_it_was_over() -> None:
    bench = Bench(lease("greedy"))
    assert not bench.ends(0.0, read_s=0.0)
    (told,) = bench.told
    assert (told.kind, told.gpu, told.measured, told.limit) == (Silent.OVER_GRANT, "GPU-0", 60, 40)
    assert told.text.endswith("granted there; it is ended if that goes on for 10 s")
    bench.held = 40
    assert not bench.ends(9.0, read_s=9.0)
    assert bench.told == []
    bench.held = 60
    assert not bench.ends(12.0, read_s=12.0)
    assert not bench.ends(21.0, read_s=21.0)
    assert bench.ends(22.0, read_s=22.0)


def test_neither_look_ends_the_others_warning() -> None:
    own = lease("greedy")
    bench = Bench(own)
    others: list[list[Silent]] = []
    telemetry, found = SimpleNamespace(series=lambda *_, **__: []), bench.found

    def keep(_: Fence, told: Sequence[SilentFailure]) -> tuple[list[RunWarning], list[RunWarning]]:
        others.append([each.kind for each in told])
        return [], []

    ledger = SimpleNamespace(telemetry=telemetry, warnings=SimpleNamespace(keep=keep))
    site = SimpleNamespace(ledger=ledger, policy_settings=SimpleNamespace(silent_after_s=60.0))
    check = SilentCheck(site, own, found)  # type: ignore[arg-type]
    assert not bench.ends(0.0, read_s=0.0)
    check.check(30.0, Usage())  # by readings of before: nobody is over
    above = SilentFailure(Silent.OVER_GRANT, "greedy", "GPU-0", 41, 40, "holds a little more")
    found.by_check = (above,)
    bench.held = 41
    assert not bench.ends(5.0, read_s=5.0)
    assert bench.told == [above]
    found.by_check = ()
    check.check(35.0, Usage())
    assert others == [[Silent.OVER_GRANT], []]


def test_neither_the_neighbour_nor_who_has_the_gpu_alone_is_ended() -> None:
    for own in (lease("innocent"), lease("greedy", Sharing.WHOLE)):
        bench = Bench(own)
        assert not any(bench.ends(at_s, read_s=at_s) for at_s in (0.0, 10.0, 20.0, 30.0))
        assert bench.told == []


def test_of_a_thousand_runs_around_their_grants_no_innocent_ends_and_offenders_are_named() -> None:
    """By the watch of each run; the ledger and what processes hold are stubs."""
    chance, ended, runs = random.Random(0), 0, 0
    for _ in range(125):
        gpu = Gpu("GPU-0", 0, "H100", 80_000, reserve_bytes=chance.choice([0, 500, 4000]))
        share = (gpu.memory_bytes - gpu.reserve_bytes) // 8
        granted = {f"r{n}": chance.randint(share * 9 // 10, share) for n in range(8)}
        runs += len(granted)
        leases = {
            run: replace(lease(run), gpus=(GpuGrant("GPU-0", size),))
            for run, size in granted.items()
        }
        live, clock, told = set(granted), HandClock(), set[str]()

        def keep(
            fence: Fence, found: Sequence[SilentFailure], **_: object
        ) -> tuple[list[Any], list[Any]]:
            told.update({fence.run_id} if found else ())  # noqa: B023 - called in this round
            return [], []

        ledger = SimpleNamespace(
            leases=SimpleNamespace(live=lambda _: [leases[run] for run in sorted(live)]),  # noqa: B023
            warnings=SimpleNamespace(keep=keep),
        )
        site: Any = SimpleNamespace(ledger=ledger, clock=clock)
        watches = {run: GrantWatch(site, own, OverGrants()) for run, own in leases.items()}
        greedy = {run for run in granted if chance.random() < 0.4}
        above: set[str] = set()
        for tick in range(12):
            held = {
                run: round(
                    granted[run] * chance.uniform(*((1.0, 1.9) if run in greedy else (0, 1)))
                )
                for run in sorted(live)
            }
            while sum(held.values()) > gpu.memory_bytes:  # what is not there nobody holds
                held[chance.choice(sorted(held))] //= 2
            above = {run for run in held if held[run] > granted[run]} | above
            clock.at_s = 5.0 * tick
            at = AT + timedelta(seconds=clock.at_s)
            processes = tuple(GpuProcess(n, held[run], run) for n, run in enumerate(held))
            seen = GpuReading("GPU-0", 0, "H100", 80_000, sum(held.values()), processes=processes)
            record: Any = SimpleNamespace(
                node=Node("n", "gpu", Capacity(1.0, 1, (gpu,))),
                reading=NodeReading(at, HostReading(1, 0, 0.0, 1), (seen,)),
            )
            for run in sorted(live):
                if why := watches[run].verdict(record):
                    assert run in greedy, why
                    assert run in told  # it was warned before
                    assert held[run] > granted[run]
                    assert why.startswith("it holds ")
                    ended += 1
                    live.discard(run)
                    break  # the others see the next reading
        assert told <= above <= greedy
    assert (runs, ended > 50) == (1000, True), ended
