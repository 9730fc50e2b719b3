"""Locks whose files come and go stay exclusive."""

import threading
from pathlib import Path

from headway.clock import SystemClock
from headway.staging.folders import FileLocks


class Impatient(SystemClock):
    def sleep(self, seconds: float) -> None:
        super().sleep(0)


def test_a_lock_that_is_forgotten_all_the_time_is_still_exclusive(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path, Impatient())
    inside: list[int] = []
    wrong: list[list[int]] = []

    def work(number: int) -> None:
        for _ in range(300):
            with locks.held("k"):
                inside.append(number)
                Impatient().sleep(0)
                if inside != [number]:
                    wrong.append(list(inside))
                inside.clear()
                locks.forget("k")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_lock_that_is_held_is_not_free(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path, SystemClock())
    with locks.held("k"):
        with locks.held_if_free("k") as free:
            assert not free
        with locks.held_if_free("other") as free:
            assert free
    with locks.held_if_free("k") as free:
        assert free
