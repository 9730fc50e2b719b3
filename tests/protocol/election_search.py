"""Search through every state of the model of elections."""

from collections.abc import Iterable, Mapping, Sequence

from tests.protocol.election import Rules, State, first_state, is_over
from tests.protocol.election_steps import steps
from tests.protocol.explore import Explored
from tests.protocol.run_steps import Violation


def explore_elections(rules: Rules) -> Explored:
    """Look at every state; stop at the first step that must not be possible."""
    first = first_state(rules)
    before: dict[State, tuple[State, str] | None] = {first: None}
    into: dict[State, list[State]] = {}
    level, depth, taken = [first], 0, 0
    while level:
        depth += 1
        following = []
        for state in level:
            try:
                for step in steps(state, rules):
                    taken += 1
                    into.setdefault(step.state, []).append(state)
                    if step.state not in before:
                        before[step.state] = state, f"{step.action} {step.who}"
                        following.append(step.state)
            except Violation as found:
                return Explored(len(before), taken, depth, str(found), _way(before, state))
        level = following
    return Explored(len(before), taken, depth, stuck=len(before) - _with_an_end(before, into))


def _way(before: Mapping[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    way = []
    while (step := before[state]) is not None:
        state, action = step
        way.append(action)
    return tuple(reversed(way))


def _with_an_end(states: Iterable[State], into: Mapping[State, Sequence[State]]) -> int:
    """How many of the states have a way to an end."""
    good = {state for state in states if is_over(state)}
    newest = list(good)
    while newest:
        newest = list({back for each in newest for back in into.get(each, ())} - good)
        good.update(newest)
    return len(good)
