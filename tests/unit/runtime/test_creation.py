"""What of a container's spec the engine is asked for."""

import os
from dataclasses import replace
from typing import Any

import pytest

from headway.runtime.docker.creation import cpuset
from tests.unit.runtime.test_rules import SPEC

HERE = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"CPUSet": True, "NCPU": HERE}, "0,3"),
        ({"CPUSet": True, "NCPU": HERE + 1}, None),
        ({"CPUSet": False, "NCPU": HERE}, None),
        ({}, None),
    ],
)
def test_only_an_engine_that_has_the_cpus_of_this_process_is_told_of_some(
    info: dict[str, Any], expected: str | None
) -> None:
    assert cpuset(replace(SPEC, near_cpus=frozenset({3, 0})), info) == expected
    assert cpuset(SPEC, info) is None
