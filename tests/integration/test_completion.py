"""Completion as a real bash asks for it, beside a gateway with runs and nodes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.site import Site
from tests.support.api import MEMBER, bearer, serving, site_in
from tests.support.lived_in import NODE, RUNNING, populate
from tests.support.on_ledger import enqueue

HEADWAY = str(Path(sys.executable).with_name("headway"))
HOSTILE = "$(touch hit)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = site_in(tmp_path_factory.mktemp("site"))
    populate(site.ledger)
    job = {"name": "digits", "image": "python:3.11", "command": ["python", "train.py"]}
    enqueue(site.ledger, "w3", job, name=HOSTILE, submitted_at=site.ledger.now())
    yield site
    site.ledger.close()


@pytest.fixture(scope="module")
def known(site: Site) -> Iterator[dict[str, str]]:
    """The environment of a member of team t."""
    token = bearer(site, "me", "t", MEMBER)["Authorization"].removeprefix("Bearer ")
    with serving(site) as url:
        yield {"HEADWAY_URL": url, "HEADWAY_TOKEN": token}


def completed(line: str, known: dict[str, str]) -> list[str]:
    """What a bash with the script of `headway completion bash` offers at the end of *line*."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        f'PATH="{Path(HEADWAY).parent}:$PATH"; eval "$(headway completion bash)"; '
        f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
        '_headway_completion headway; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=120, check=True,
        env={**os.environ, **known},
    )  # fmt: skip
    return done.stdout.split()


def test_runs_are_completed_by_name_and_by_id(known: dict[str, str]) -> None:
    offered = completed("headway show brave-1", known)
    assert offered == [f"brave-{RUNNING}"]
    assert completed(f"headway logs {RUNNING[:5]}", known) == [RUNNING]


def test_nodes_are_completed(known: dict[str, str]) -> None:
    assert completed("headway node drain node-", known) == [NODE, "node-b"]


def test_commands_are_completed(known: dict[str, str]) -> None:
    assert completed("headway estimat", known) == ["estimate", "estimators"]


def test_a_name_that_a_shell_would_run_is_not_offered(known: dict[str, str]) -> None:
    assert not [each for each in completed("headway show ", known) if "$" in each]


def test_without_a_gateway_nothing_is_offered_and_nothing_said(tmp_path: Path) -> None:
    nowhere = {"HEADWAY_URL": "http://127.0.0.1:1", "HEADWAY_TOKEN": "x", "HOME": str(tmp_path)}
    assert completed("headway show ", nowhere) == []
