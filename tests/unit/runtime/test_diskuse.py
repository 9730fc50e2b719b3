"""How much disk is taken, counted a little at a time."""

import os
from pathlib import Path

from headway.runtime.diskuse import DiskMeter, used_bytes
from headway.testing.clock import FakeClock
from headway.units import MIB


class Slow(FakeClock):
    """Each reading of it takes a tenth of a second."""

    def monotonic_s(self) -> float:
        self.sleep(0.1)
        return super().monotonic_s()


def fill(path: Path, size: int = MIB) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))


def test_everything_below_counts_once_and_nothing_else(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    fill(outside / "large", 4 * MIB)
    fill(inside / "a/b/file")
    (inside / "again").hardlink_to(inside / "a/b/file")
    (inside / "link").symlink_to(outside)
    (inside / "file-link").symlink_to(outside / "large")
    with (inside / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert MIB <= used_bytes(inside) < MIB + 64 * 1024
    assert used_bytes(tmp_path / "missing") == 0


def test_a_measurement_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    for number in range(1000):
        fill(tmp_path / f"{number}", 4096)
    meter = DiskMeter(Slow(), {"here": lambda: (tmp_path,)})
    seen = [meter.measure(budget_s=0.05)[0].used_bytes for _ in range(8)]
    assert seen[0] <= 257 * 4096
    assert seen == sorted(seen)
    assert seen[-1] >= 1000 * 4096
    assert meter.peak_bytes == seen[-1]


def test_what_was_removed_counts_no_more_but_in_the_peak(tmp_path: Path) -> None:
    fill(tmp_path / "file", 4 * MIB)
    meter = DiskMeter(FakeClock(), {"here": lambda: (tmp_path,), "nowhere": lambda: ()})
    (found,) = meter.measure()
    assert found.used_bytes >= 4 * MIB
    assert found.free_bytes > 0
    (tmp_path / "file").unlink()
    assert meter.measure()[0].used_bytes < MIB
    assert meter.measure_all()[0].used_bytes < MIB
    assert meter.peak_bytes >= 4 * MIB


def test_a_file_that_was_removed_counts_while_it_is_held_open(tmp_path: Path) -> None:
    meter = DiskMeter(FakeClock(), {"here": lambda: (tmp_path,)})
    pids = (os.getpid(), 1 << 30)
    before = sum(use.used_bytes for use in meter.measure(pids))
    fill(tmp_path / "file", 4 * MIB)
    memory = os.memfd_create("no disk")
    os.write(memory, os.urandom(4 * MIB))
    with (tmp_path / "file").open("rb") as held:
        again = os.dup(held.fileno())
        (tmp_path / "file").unlink()
        here, removed = meter.measure(pids)
        os.close(again)
    os.close(memory)
    assert here.used_bytes < MIB
    assert 4 * MIB <= removed.used_bytes < 5 * MIB + before
    assert (removed.free_bytes, removed.total_bytes) == (here.free_bytes, here.total_bytes)
    assert sum(use.used_bytes for use in meter.measure(pids)) < MIB + before
