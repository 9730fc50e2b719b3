"""What a runtime must do that shares CPU time. Subclass `WeightContract`; it wants a `harness`."""

import time
from dataclasses import replace
from statistics import median

from headway.model.container_policy import CpuRule
from headway.runtime.port import ContainerSpec, Runtime
from tests.ports.runtime_harness import SPINS, Harness, until, whole_log

_CPU_S = 4.0
"""Each pair of programs is compared over so much CPU time."""
_COMPARED = 3
"""So often; the middle one counts."""


class WeightContract:
    """CPUs are a guarantee: weights where several want them, and idle ones for anybody.

    On a machine whose control groups may be written, and that has something left to do it on.
    """

    def test_two_that_compete_share_by_their_cpus(self, harness: Harness) -> None:
        few, many = (replace(harness.spec(SPINS), cpus=cpus) for cpus in (0.5, 1.5))
        runtime = harness.started(few)
        harness.started(many)
        names = few.name, many.name
        until(lambda: all(whole_log(runtime, name) == b"up\n" for name in names))

        def ratio() -> float:
            began = [_cpu_s(runtime, name) for name in names]

            def used() -> list[float]:
                return [
                    _cpu_s(runtime, name) - at_s for name, at_s in zip(names, began, strict=True)
                ]

            until(lambda: sum(used()) >= _CPU_S)
            less_s, more_s = used()
            return more_s / less_s

        # The kernel shares each CPU by weight, and the two shares of one program are moved
        # between CPUs as others come and go: one comparison may be of a moment without balance.
        assert 2.2 <= median(ratio() for _ in range(_COMPARED)) <= 4.0

    def test_one_that_is_alone_gets_what_is_idle(self, harness: Harness) -> None:
        runtime, spec = _spinning(harness, CpuRule.GUARANTEE)
        # The machine may have much else to do; a quota would be kept all the same.
        until(lambda: _rate(runtime, spec) > 3 * spec.cpus)

    def test_a_ceiling_is_kept_where_the_site_says_so(self, harness: Harness) -> None:
        """Of what keeps its programs to whole CPUs it is one at least."""
        runtime, spec = _spinning(harness, CpuRule.CEILING)
        assert _rate(runtime, spec) <= 1.15


def _spinning(harness: Harness, rule: CpuRule) -> tuple[Runtime, ContainerSpec]:
    policy = harness.policy().model_copy(update={"cpus": rule})
    runtime, spec = harness.make(harness.site, policy), replace(harness.spec(SPINS), cpus=0.05)
    runtime.create(spec)
    runtime.start(spec.name)
    until(lambda: whole_log(runtime, spec.name) == b"up\n")
    return runtime, spec


def _rate(runtime: Runtime, spec: ContainerSpec) -> float:
    """CPUs that it uses, over a second or two."""
    began_s, before_s = time.monotonic(), _cpu_s(runtime, spec.name)
    until(lambda: time.monotonic() - began_s > 1.0 and _cpu_s(runtime, spec.name) > before_s)
    return (_cpu_s(runtime, spec.name) - before_s) / (time.monotonic() - began_s)


def _cpu_s(runtime: Runtime, name: str) -> float:
    return runtime.usage(name).cpu_s or 0.0
