"""Kills at random moments of a site that is busy; `make faults` does the same at length."""

import random

import pytest

from tests.support.kills import kill_while_busy
from tests.support.promises import Watched
from tests.support.site import PATIENCE_S, LiveSite

pytestmark = pytest.mark.prefect

KILLS = 5


def test_what_is_killed_at_random_costs_no_run(process_site: LiveSite) -> None:
    watched = Watched(process_site)
    killed = kill_while_busy(watched, KILLS, random.Random(), lambda _: None)
    watched.until_ended(watched.runs, 2 * PATIENCE_S)
    assert watched.broken(watched.runs, PATIENCE_S) == [], killed
