"""The protocol with one rule broken at a time, and the size that shows it."""

from dataclasses import replace

from tests.protocol import election
from tests.protocol.values import NEVER, TTL, Rules

_ONE_RUN = Rules(nodes=2, runs=1, faults=2, told_to_prefect=False)
_ALONE = Rules(nodes=1, runs=1, told_to_prefect=False, remove_after=NEVER)
"""Nobody removes the node: what is stuck there stays so."""
_PREFECT = Rules(nodes=1, runs=1, faults=1)


def _broken(size: Rules, **rules: object) -> Rules:
    return Rules(**(vars(size) | rules))  # type: ignore[arg-type]


MUTATIONS: dict[str, Rules] = {
    "no fence at all": _broken(_ONE_RUN, fence_token=False, fence_attempt=False),
    "writes compare the attempt, not the token": _broken(_ONE_RUN, fence_token=False),
    "writes compare the token, not the attempt": _broken(_ONE_RUN, fence_attempt=False),
    "a release compares no token": _broken(_ONE_RUN, fence_release=False),
    "expiry gives the place away at once": _broken(_ONE_RUN, remove_after=TTL),
    "node remove waits for nothing": _broken(_ONE_RUN, remove_after=0),
    "the guard has no margin": _broken(_ONE_RUN, guard_limit=TTL),
    "there is no guard": _broken(_ONE_RUN, guard_kills=False),
    "the guard leaves containers that were created and not started": _broken(
        _ONE_RUN, guard_kills_created=False
    ),
    "a restarted guard counts from its own start": _broken(_ONE_RUN, guard_remembers=False),
    "the guard's clock stops while the machine sleeps": _broken(_ONE_RUN, counts_sleep=False),
    "the guard counts from the creation, and begin renews nothing": _broken(
        _ONE_RUN, begin_renews=False
    ),
    "the lease is released before the container is gone": _broken(_PREFECT, container_first=False),
    "claims have no end": _broken(_ALONE, claims_end=False),
    "admission locks nothing": _broken(_ONE_RUN, nodes=1, runs=2, locked=False),
    "told before Prefect has acknowledged it": _broken(_PREFECT, told_when_seen=False),
    "the last end counts, not the first": _broken(_PREFECT, first_end_counts=False),
}

_POOL = election.Rules(nodes=2, runs=2, faults=1)
OF_ELECTIONS: dict[str, election.Rules] = {
    "a grant compares no term": replace(_POOL, grants_by=election.BY_NOTHING),
    "a grant goes by the leader's own clock": replace(_POOL, grants_by=election.BY_OWN_CLOCK),
    "a grant names the newest term, not the one it was decided in": replace(
        _POOL, grants_by=election.BY_NEWEST
    ),
    "a standby waits for no expiry": replace(_POOL, waits_for_expiry=False),
    "a flow process takes up whatever claim there is": replace(_POOL, fence_take_up=False),
    "a claim is given back by what was read before": replace(_POOL, compares_claims=False),
    "a claim that nobody takes up stays": replace(_POOL, runs=1, come_back=False, claims_end=False),
    "a refusal brings no newer reading": replace(_POOL, refusal_reports=False),
}
