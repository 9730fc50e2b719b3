"""Chains: a run waits for the one that it follows, starts, or ends since it never may."""

import pytest

from headway.model.lease import Wait
from headway.model.run import Exit, ExitKind, When
from headway.policy.after import Followed, Following

ID = "0d4c1a2e-1111-2222-3333-444455556666"


def says(when: When, exit_: Exit | None) -> Wait | Exit | None:
    return Following(ID, when, "vision", Followed(ID, "stage", "vision", exit_)).says()


def ended(kind: ExitKind) -> Exit:
    return Exit(kind, None, "over")


@pytest.mark.parametrize("when", When)
def test_it_waits_until_the_other_has_ended(when: When) -> None:
    said = says(when, None)
    assert isinstance(said, Wait)
    assert said.reason.startswith("waits for run stage (0d4c1a2e) to end")


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("kind", ExitKind)
def test_it_starts_after_the_end_that_it_asks_for_and_no_other(when: When, kind: ExitKind) -> None:
    wanted = {When.OK: kind is ExitKind.OK, When.ANY: True, When.FAILED: kind is not ExitKind.OK}
    said = says(when, ended(kind))
    if wanted[when]:
        assert said is None
    else:
        assert isinstance(said, Exit)
        assert said.kind is ExitKind.CANCELLED
        assert said.message.endswith(f"which ended as {kind.value}; nothing was started")


@pytest.mark.parametrize(
    "found", [None, Followed(ID, "stage", "language", None)], ids=["nobody's", "another team's"]
)
def test_only_runs_of_its_own_team_are_followed(found: Followed | None) -> None:
    said = Following(ID, When.ANY, "vision", found).says()
    assert isinstance(said, Exit)
    assert said.kind is ExitKind.REFUSED
    assert "team vision has no run" in said.message
    assert "stage" not in said.message
