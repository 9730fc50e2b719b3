"""Whatever is asked of the ledger, in whatever order and however often: its promises are kept."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from headway.errors import IllegalTransition, LeaseLost
from headway.ledger import Ledger
from headway.model.lease import Fence, Lease
from headway.model.node import NodeState
from headway.model.run import Measurement
from tests.support import ledger_faults as faults
from tests.support.fence import fence_of

RUNS = ("a", "b", "c")


def machine(url: str) -> type[RuleBasedStateMachine]:
    """A machine on the ledger at *url*; each of its lives has runs of its own."""
    lives = iter(range(10_000))

    class Machine(RuleBasedStateMachine):
        fences = Bundle("fences")

        def __init__(self) -> None:
            super().__init__()
            self.ledger = Ledger.open(url)
            for record in self.ledger.nodes.all():
                self.ledger.leases.release_node(record.node.name)
            faults.prepare(self.ledger)
            life = next(lives)
            self.ids = [f"{life}-{name}" for name in RUNS]
            for run_id in self.ids:
                faults.enqueue(self.ledger, run_id)

        def teardown(self) -> None:
            self.ledger.close()

        @rule(run=st.integers(0, 2), node=st.sampled_from(faults.NODES), target=fences)
        def claim(self, run: int, node: str) -> Fence:
            self.ledger.leases.admit(
                self.ids[run], node, faults.DEMAND, reading=None, ttl_s=900.0, start_limit_s=0.0
            )
            return fence_of(self.ledger, self.ids[run])

        def _write(self, fence: Fence, call: Callable[[], object]) -> None:
            """What is refused changes nothing, and nobody but the holder changes anything."""
            holder, before = fence_of(self.ledger, fence.run_id), self._seen(fence.run_id)
            refused = False
            try:
                call()
            except (LeaseLost, IllegalTransition):
                refused = True
            after = self._seen(fence.run_id)
            assert not (refused and after != before)
            (run_before, lease_before), (run_after, lease_after) = before, after
            assert fence == holder or run_after == run_before, f"{fence} changed {holder}'s run"
            # A lease is its attempt's until it is released, though the run waits for the next.
            own = lease_before is not None and lease_before.fence == fence
            assert own or lease_after == lease_before, f"{fence} changed {lease_before}"

        def _seen(self, run_id: str) -> tuple[object, Lease | None]:
            run = self.ledger.runs.get(run_id)
            kept = run.state, run.attempt, run.exit, run.told_end_at
            return kept, self.ledger.leases.of_run(run_id)

        @rule(fence=fences)
        def take_up(self, fence: Fence) -> None:
            self._write(fence, lambda: self.ledger.leases.take_up(fence))

        @rule(fence=fences)
        def begin(self, fence: Fence) -> None:
            runs = self.ledger.runs
            self._write(
                fence, lambda: runs.begin(fence, container="c", runtime="process", ttl_s=60.0)
            )

        @rule(fence=fences)
        def give_back(self, fence: Fence) -> None:
            self._write(fence, lambda: self.ledger.leases.give_back(fence))

        @rule(fence=fences)
        def requeue(self, fence: Fence) -> None:
            self._write(fence, lambda: self.ledger.runs.requeue(fence, faults.GONE))

        @rule(fence=fences)
        def finish(self, fence: Fence) -> None:
            runs, ends = self.ledger.runs, []
            self._write(fence, lambda: ends.append(runs.finish(fence, faults.OK, Measurement())))
            if ends:  # the first end counts
                self._write(
                    fence, lambda: ends.append(runs.finish(fence, faults.GONE, Measurement()))
                )
                assert ends[0] == ends[1]

        @rule(fence=fences)
        def release(self, fence: Fence) -> None:
            run = self.ledger.runs.get(fence.run_id)
            over = run.attempt > fence.attempt or run.exit is not None
            if over:  # its container is gone
                self.ledger.leases.release(fence)

        @rule(run=st.integers(0, 2), attempt=st.integers(1, 3))
        def told(self, run: int, attempt: int) -> None:
            self.ledger.runs.told(self.ids[run], attempt)

        @rule(run=st.integers(0, 2))
        def retry(self, run: int) -> None:
            seen = self.ledger.runs.get(self.ids[run])
            with suppress(IllegalTransition):
                self.ledger.runs.retry(seen.run_id, seen.attempt)

        @rule(node=st.sampled_from(faults.NODES), state=st.sampled_from(NodeState))
        def drain(self, node: str, state: NodeState) -> None:
            self.ledger.nodes.set_state(node, state, "for a while")

        @rule(run=st.integers(0, 2), seed=st.integers(0, 1000))
        def go_on(self, run: int, seed: int) -> None:
            seen = self.ledger.runs.get(self.ids[run])
            faults.next_step(self.ledger, seen, Random(seed))

        @invariant()
        def promises_are_kept(self) -> None:
            assert faults.broken(self.ledger, self.ids) == []

    return Machine


def test_the_promises_are_kept(ledger_url: str) -> None:
    run_state_machine_as_test(
        machine(ledger_url),
        settings=settings(
            max_examples=10,
            stateful_step_count=40,
            phases=[Phase.generate],  # to shrink what it finds takes minutes of a database
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
