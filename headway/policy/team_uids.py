"""Which uids a team's programs get: each team a range that no other has, and that never moves."""

from collections.abc import Mapping

from headway.errors import InvalidInput
from headway.model.number_range import NumberRange

RANGE_SIZE = 1000
"""Uids of a team that the operator gave none."""


def allot(
    team: str,
    taken: Mapping[str, NumberRange],
    pool: NumberRange,
    asked: NumberRange | None = None,
) -> NumberRange:
    """The range of *team*, which has none yet.

    Args:
        team: Its name.
        taken: Ranges of other teams, by name.
        pool: Where ranges are taken from that the operator did not name.
        asked: The range that the operator named; None for the first free one.

    Raises:
        InvalidInput: *asked* is not free, or *pool* is used up.
    """
    if asked is not None:
        for other, theirs in taken.items():
            if theirs.meets(asked):
                raise InvalidInput(
                    f"teams.{team}.uids",
                    str(asked),
                    f"team {other} has {theirs}, and its files belong to these uids; "
                    "give a range that overlaps no other team's",
                )
        return asked
    first = pool.first
    for theirs in sorted(taken.values()):
        if theirs.meets(NumberRange(first, first + RANGE_SIZE - 1)):
            first = theirs.last + 1
    found = NumberRange(first, first + RANGE_SIZE - 1)
    if not pool.holds(found):
        raise InvalidInput(
            "uids",
            str(pool),
            f"{len(taken)} teams have their uids, and no {RANGE_SIZE} in a row are left for team "
            f"{team}; give a larger range in the block headway-container-policy/site",
        )
    return found


def agree(
    taken: Mapping[str, NumberRange], asked: Mapping[str, NumberRange]
) -> dict[str, NumberRange]:
    """Ranges of *asked* that are to be noted beside those that were *taken*.

    Raises:
        InvalidInput: A team has another range already, or one is not free.
    """
    known, new = dict(taken), dict[str, NumberRange]()
    for team, wanted in sorted(asked.items()):
        has = known.get(team)
        if has is not None and has != wanted:
            raise InvalidInput(
                f"teams.{team}.uids",
                str(wanted),
                f"team {team} has had {has} since its first run, and its files belong to these "
                "uids; give that range, or leave it out",
            )
        if has is None:
            known[team] = new[team] = allot(team, known, wanted, asked=wanted)
    return new
