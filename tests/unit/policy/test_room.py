import math

import pytest

from headway.policy.room import Need, Occupant, Reservation, Room


def room(*ends: tuple[float, Need], memory: int = 24, limit: float = 1.0) -> Room:
    made = Room(memory, limit, memory)
    for at, (end_s, need) in enumerate(ends):
        made.enter(Occupant(end_s, f"run{at}", 0.0, end_s, need))
    return made


def test_memory_and_load_both_limit_who_fits() -> None:
    made = room((100, Need(10, 0.5)))
    assert made.fits_now(Need(14, 0.5))
    assert not made.fits_now(Need(15, 0.5))
    assert not made.fits_now(Need(14, 0.51))


def test_fractions_that_add_up_to_the_limit_fit() -> None:
    assert room((1, Need(1, 0.1)), (1, Need(1, 0.2))).fits_now(Need(1, 0.7))


def test_a_whole_run_is_alone() -> None:
    assert not room((100, Need(1, 0.0))).fits_now(Need(1, 0.0, whole=True))
    assert not room((100, Need(24, 0.0, whole=True))).fits_now(Need(0, 0.0))
    assert room().fits_now(Need(24, 0.0, whole=True))


def test_a_room_with_strangers_is_never_given_whole() -> None:
    made = room()
    made.foreign, made.free_bytes = True, 20
    assert not made.fits_now(Need(1, 0.0, whole=True))
    assert made.fits_now(Need(20, 1.0))
    assert made.opens_at(Need(1, 0.0, whole=True), 0.0) == math.inf


def test_leaving_gives_back_what_entering_took() -> None:
    made = room((100, Need(10, 0.1)), (50, Need(5, 0.2)))
    made.leave("run0")
    made.leave("run1")
    assert (made.free_bytes, made.load, made.occupants) == (24, 0.0, [])


@pytest.mark.parametrize(
    ("need", "opens_s"),
    [
        (Need(4, 0.1), 0.0),
        (Need(10, 0.1), 50.0),
        (Need(4, 0.9), 100.0),
        (Need(24, 0.0, whole=True), 100.0),
        (Need(25, 0.0), math.inf),
    ],
)
def test_opens_when_enough_have_left(need: Need, opens_s: float) -> None:
    assert room((50, Need(10, 0.1)), (100, Need(10, 0.5))).opens_at(need, 0.0) == opens_s


def test_a_promise_is_kept_also_when_it_begins_in_between() -> None:
    made = room((50, Need(20, 0.1)))
    made.reservations.append(Reservation(50, 80, Need(20, 0.1)))
    assert made.fits_during(Need(4, 0.1), 0, 1000)
    assert not made.fits_during(Need(5, 0.1), 50, 60)
    assert made.fits_during(Need(24, 0.1), 80, 1000)
    made.reservations.append(Reservation(100, 200, Need(24, 0.0, whole=True)))
    assert made.fits_during(Need(4, 0.1), 0, 100)
    assert not made.fits_during(Need(4, 0.1), 0, 101)


def test_two_promises_one_after_the_other_do_not_add_up() -> None:
    made = room()
    made.reservations += [Reservation(10, 20, Need(20, 0.5)), Reservation(20, 30, Need(20, 0.5))]
    assert made.fits_during(Need(4, 0.5), 0, 100)
    assert not made.fits_during(Need(5, 0.5), 0, 100)


def test_who_outlives_his_prediction_is_expected_to_go_on_for_a_part_of_his_time() -> None:
    made = room((100, Need(24, 1.0)))
    made.outlived(200.0, 0.25)
    assert made.opens_at(Need(24, 1.0), 200.0) == 250.0
    made.outlived(300.0, 0.25)
    assert made.opens_at(Need(24, 1.0), 300.0) == 375.0
