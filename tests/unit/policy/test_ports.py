"""The ports of a node that a lease gets."""

import socket

import pytest

from headway.model.lease import ANY_PORT
from headway.model.number_range import NumberRange
from headway.policy.ports import leased_ports
from headway.runtime.listening import listening_ports

FREE = NumberRange(30_000, 30_003)


@pytest.mark.parametrize(
    ("asked", "published", "taken", "got"),
    [
        ([], True, [], {}),
        ([6006], True, [], {6006: 30_000}),
        ([6006, 8080], True, [30_000, 30_002], {6006: 30_001, 8080: 30_003}),
        ([30_001, ANY_PORT], True, [30_000], {30_001: 30_001, 30_002: 30_002}),
        ([6006, 8080], True, [30_000, 30_001, 30_002], None),
        ([6006], False, [], {6006: 6006}),
        ([6006, ANY_PORT], False, [], {6006: 6006, 30_000: 30_000}),
        ([30_000, ANY_PORT], False, [30_000], {30_000: 30_000, 30_001: 30_001}),
        ([ANY_PORT], False, [30_000, 30_001, 30_002, 30_003], None),
    ],
)
def test_each_port_of_a_program_has_one_of_the_node(
    asked: list[int], published: bool, taken: list[int], got: dict[int, int] | None
) -> None:
    assert leased_ports(asked, FREE, published=published, taken=taken) == got


def test_ports_of_other_teams_are_given_to_nobody() -> None:
    theirs = [NumberRange(30_000, 30_001), NumberRange(30_003, 30_003)]
    found = leased_ports([6006], FREE, published=True, taken=(), not_of=theirs)
    assert found == {6006: 30_002}


def test_where_another_program_listens_is_no_free_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert port in listening_ports()
    assert port not in listening_ports()
