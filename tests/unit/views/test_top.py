"""The picture shows what is known, and users' text as text."""

import io

import pytest
from rich.console import Console

from headway.units import GIB
from headway.views.top import bar, picture

NODE = {
    "node": "node-a", "state": "ready", "state_reason": "", "cpus": 8.0, "cpus_promised": 2.0,
    "host_memory_bytes": 64 * GIB, "host_used_bytes": 32 * GIB, "host_promised_bytes": 8 * GIB,
    "gpu_error": "",
    "gpus": [{
        "index": 0, "name": "V100", "memory_bytes": 16 * GIB, "used_bytes": None,
        "promised_bytes": 3 * GIB, "utilisation_frac": None, "lost": "", "drained": "",
    }, {
        "index": 1, "name": "V100", "memory_bytes": 16 * GIB, "used_bytes": None,
        "promised_bytes": 0, "utilisation_frac": None, "lost": "NVML error 15",
    }],
}  # fmt: skip
WARNED = {"kind": "gpu_unused", "text": "holds GPU-0, which was 0.0% busy"}
RUN = {
    "name": "otter", "node": "node-a", "elapsed_s": 90.0, "done_frac": 0.25, "remaining_s": None,
    "progress_text": "25%, 2 to 9 min left",
    "warnings": [WARNED], "array_id": None,
}  # fmt: skip
MEMBER = RUN | {"name": "sweep-7", "array_id": "a1"}
ARRAY = {
    "array_id": "a1", "name": "sweep", "size": 1000, "waiting": 990, "running": 1, "ended_well": 8,
    "failed": 1, "cancelled": 0, "expected_end_at": None,
}  # fmt: skip
WAITING = {
    "position": 1, "name": "[red]x\x1b[2J", "owner": "me", "reason": "needs 3 GPUs",
    "starts_now": False, "earliest_start_at": None, "expected_start_at": None,
    "latest_start_at": None, "start_unknown": "nothing is known of how long otter runs",
    "array_waiting": 990,
}  # fmt: skip


def test_everything_is_in_the_picture() -> None:
    out = io.StringIO()
    Console(file=out, width=160, force_terminal=False).print(
        picture({"nodes": [NODE], "runs": [RUN, MEMBER], "arrays": [ARRAY], "queue": [WAITING]})
    )
    text = out.getvalue()
    for part in (
        "node-a", "50%", "gpu0  V100", "lost: NVML error 15", "gpu_unused: it holds GPU-0",
        "otter", "2 to 9 min left", "needs 3 GPUs",
        "sweep (1000 members): 990 wait, 1 run, 8 ended well, 1 failed",
        "and 989 more of its array",
        "not known: nothing is known of how long otter runs",
    ):  # fmt: skip
        assert part in text
    assert text.count("25%") == 1
    assert "[red]x\\x1b[2J" in text
    assert "sweep-7" not in text  # its array is the line
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        (None, 1.0, "–"),
        (1.0, 0.0, "–"),
        (0.5, 1.0, "██████······  50%"),
        (3.0, 2.0, "████████████ 150%"),
    ],
)
def test_bars(part: float | None, whole: float, expected: str) -> None:
    assert bar(part, whole) == expected
