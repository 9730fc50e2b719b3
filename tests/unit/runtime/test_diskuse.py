"""How much disk is taken, counted a little at a time."""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL, byref, c_int, c_long, c_void_p, create_string_buffer
from pathlib import Path
from socket import AF_UNIX, recv_fds, send_fds, socket, socketpair
from threading import Event, Thread, current_thread, main_thread

import pytest

from headway.runtime.diskuse import DiskMeter, removed_but_open, used_bytes
from headway.units import MIB
from tests.ports.clock import FakeClock

LIBC = CDLL(None)
LIBC.mmap.restype = c_void_p
CLONE_FILES = 0x400
IO_URING_SETUP, IO_URING_REGISTER, REGISTER_FILES = 425, 427, 2


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


def test_each_name_counts_however_small(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for number in range(500):
        (tmp_path / "folder" / f"{number}").touch()
        (tmp_path / f"link-{number}").hardlink_to(tmp_path / "folder" / "0")
    (use,) = DiskMeter(FakeClock(), {"here": lambda: (tmp_path,)}).measure(wait_s=30.0)
    assert use.used_files == 1002
    assert 1001 * 4096 <= use.used_bytes <= 1100 * 4096
    assert use.total_files > use.free_files > 0 or use.total_files == 0


def test_nobody_waits_for_a_count(tmp_path: Path) -> None:
    fill(tmp_path / "file", 4 * MIB)
    asked, go_on = Event(), Event()

    def folders() -> tuple[Path, ...]:
        asked.set()
        if current_thread() is not main_thread():
            go_on.wait(30.0)
        return (tmp_path,)

    meter = DiskMeter(FakeClock(), {"file": lambda: (tmp_path / "file",), "here": folders})
    assert sum(use.used_bytes for use in meter.measure(wait_s=0.0)) < 8 * MIB
    assert asked.wait(30.0)
    assert (
        sum(use.used_bytes for use in meter.measure(wait_s=0.0)) < 8 * MIB
    )  # nor is a second begun
    go_on.set()
    assert sum(use.used_bytes for use in meter.measure_all()) >= 4 * MIB


def test_a_count_that_nobody_has_heard_of_is_not_replaced(tmp_path: Path) -> None:
    fill(tmp_path / "file", 4 * MIB)
    clock, go_on, counted = FakeClock(), Event(), Event()

    def folders() -> tuple[Path, ...]:
        if current_thread() is not main_thread():
            go_on.wait(30.0)
        return (tmp_path,)

    @contextmanager
    def frozen() -> Iterator[bool]:
        yield False
        counted.set()

    meter = DiskMeter(clock, {"here": folders}, frozen)
    meter.measure(wait_s=0.0)
    go_on.set()
    assert counted.wait(30.0)
    (tmp_path / "file").unlink()
    clock.sleep(60.0)
    assert meter.measure(wait_s=30.0)[0].used_bytes >= 4 * MIB
    clock.sleep(60.0)
    assert meter.measure(wait_s=30.0)[0].used_bytes < MIB


def test_what_was_moved_under_the_count_is_found_while_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, lost, times = FakeClock(), [0, 0], []
    places: list[Path] = [tmp_path / "seen"]
    fill(tmp_path / "seen" / "file")
    monkeypatch.setattr(DiskMeter, "_lost", lambda _: tuple(lost))

    @contextmanager
    def frozen() -> Iterator[bool]:
        times.append(clock.monotonic_s())
        places.append(tmp_path / "moved")
        yield True
        places.pop()

    meter = DiskMeter(clock, {"here": lambda: tuple(places)}, frozen)

    def used() -> int:
        clock.sleep(60.0)
        return meter.measure(wait_s=30.0)[0].used_bytes

    fill(tmp_path / "moved" / "before", MIB)
    assert 2 * MIB <= used() < 3 * MIB  # when it is followed first, whatever came before
    fill(tmp_path / "moved" / "file", 64 * MIB)
    lost[0] += 14 * MIB
    assert used() < 2 * MIB  # others write too
    lost[0] += 64 * MIB
    assert used() >= 64 * MIB
    assert used() >= 64 * MIB
    (tmp_path / "moved" / "file").unlink()
    lost[0] -= 64 * MIB
    assert used() < 3 * MIB
    lost[1] += 40_000
    assert len(times) == 3
    assert used() < 3 * MIB
    assert len(times) == 4


def test_what_was_sent_and_not_received_counts(tmp_path: Path) -> None:
    here, there = socketpair()
    inner_here, inner_there = socketpair()
    for name, to in (("a", here), ("b", inner_here)):
        fill(tmp_path / name, 4 * MIB)
        with (tmp_path / name).open("rb") as file:
            send_fds(to, [b"message"], [file.fileno()])
        (tmp_path / name).unlink()
    send_fds(here, [b"a socket that holds one"], [inner_there.fileno()])
    send_fds(inner_here, [b"and this one itself"], [there.fileno()])
    inner_there.close()
    held = sum(size or 0 for size in removed_but_open((os.getpid(),), (tmp_path,)))
    assert held >= 8 * MIB
    _, received, _, _ = recv_fds(there, 100, 1)  # nothing was taken out of it
    assert os.fstat(received[0]).st_size == 4 * MIB
    os.close(received[0])
    for each in (here, there, inner_here):
        each.close()
    after = sum(size or 0 for size in removed_but_open((os.getpid(),), (tmp_path,)))
    assert after <= held - 4 * MIB


def test_what_a_thread_holds_in_a_list_of_files_of_its_own_counts(tmp_path: Path) -> None:
    for name in ("a", "b"):
        fill(tmp_path / name, 4 * MIB)
    ready, over = Event(), Event()

    def hold() -> None:
        assert LIBC.unshare(CLONE_FILES) == 0
        # What it opens it has to close itself: elsewhere the numbers mean other files.
        here, there = socketpair()
        with here, there, (tmp_path / "a").open("rb"):
            with (tmp_path / "b").open("rb") as sent:
                send_fds(here, [b"message"], [sent.fileno()])
            for name in ("a", "b"):
                (tmp_path / name).unlink()
            ready.set()
            over.wait(30.0)

    before = sum(size or 0 for size in removed_but_open((os.getpid(),), (tmp_path,)))
    threads = [Thread(target=hold), *(Thread(target=over.wait) for _ in range(3))]
    for each in threads:
        each.start()
    assert ready.wait(30.0)
    held = sum(size or 0 for size in removed_but_open((os.getpid(),), (tmp_path,)))
    over.set()
    for each in threads:
        each.join()
    assert held - before >= 8 * MIB


def test_what_an_io_uring_holds_is_not_taken_for_nothing(tmp_path: Path) -> None:
    ring = LIBC.syscall(IO_URING_SETUP, 4, create_string_buffer(120))
    if ring < 0:
        pytest.skip("the kernel has none")
    assert None not in removed_but_open((os.getpid(),), (tmp_path,))
    with (tmp_path / "file").open("wb") as file:
        number = c_int(file.fileno())
        assert LIBC.syscall(IO_URING_REGISTER, ring, REGISTER_FILES, byref(number), 1) == 0
    assert None in removed_but_open((os.getpid(),), (tmp_path,))
    os.close(ring)


def test_what_waits_where_nobody_accepts_is_not_taken_for_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    meter = DiskMeter(clock, {"here": lambda: (tmp_path,)})
    with socket(AF_UNIX) as server, socket(AF_UNIX) as client, (tmp_path / "a").open("wb") as file:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        client.connect(str(tmp_path / "socket"))
        send_fds(client, [b"message"], [file.fileno()])
        for _ in range(3):
            assert not meter.why_uncounted
            meter.measure((os.getpid(),), wait_s=30.0)
            clock.sleep(60.0)
    assert "connections that none of its programs accepts" in meter.why_uncounted
    meter.measure((os.getpid(),), wait_s=30.0)
    assert not meter.why_uncounted


@pytest.mark.parametrize("mode", [0, 1], ids=["in the file", "beyond its end"])
def test_what_was_reserved_and_never_written_is_given_back(tmp_path: Path, mode: int) -> None:
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    for size in (64 * MIB, MIB):
        os.pwrite(file, b"written", size)
        if LIBC.fallocate(file, mode, c_long(0), c_long(256 * MIB)):
            pytest.skip("nothing can be reserved on this file system")
    os.fsync(file)
    os.pwrite(file, b"not yet on the disk", 100 * MIB)
    content = os.pread(file, 128 * MIB, 0)
    meter = DiskMeter(FakeClock(), {"here": lambda: (tmp_path,)})
    assert meter.measure_all()[0].used_bytes >= 256 * MIB
    meter.give_back_unwritten()
    assert meter.measure_all()[0].used_bytes < MIB
    assert os.pread(file, 128 * MIB, 0) == content
    os.close(file)


def test_what_was_removed_counts_no_more_but_in_the_peak(tmp_path: Path) -> None:
    fill(tmp_path / "file", 4 * MIB)
    clock = FakeClock()
    meter = DiskMeter(clock, {"here": lambda: (tmp_path,), "nowhere": lambda: ()})
    (found,) = meter.measure(wait_s=30.0)
    assert found.used_bytes >= 4 * MIB
    assert found.free_bytes > 0
    (tmp_path / "file").unlink()
    clock.sleep(60.0)
    assert meter.measure(wait_s=30.0)[0].used_bytes < MIB
    assert meter.measure_all()[0].used_bytes < MIB
    assert meter.peak_bytes >= 4 * MIB


def test_a_file_that_was_removed_counts_while_it_is_held_open(tmp_path: Path) -> None:
    clock = FakeClock()
    meter = DiskMeter(clock, {"here": lambda: (tmp_path,)})
    pids = (os.getpid(), 1 << 30)
    before = sum(use.used_bytes for use in meter.measure(pids, wait_s=30.0))
    fill(tmp_path / "file", 4 * MIB)
    memory = os.memfd_create("no disk")
    os.write(memory, os.urandom(4 * MIB))
    with (tmp_path / "file").open("rb") as held:
        again = os.dup(held.fileno())
        (tmp_path / "file").unlink()
        clock.sleep(60.0)
        here, removed = meter.measure(pids, wait_s=30.0)
        os.close(again)
    os.close(memory)
    assert here.used_bytes < MIB
    assert 4 * MIB <= removed.used_bytes < 5 * MIB + before
    assert (removed.free_bytes, removed.total_bytes) == (here.free_bytes, here.total_bytes)
    clock.sleep(60.0)
    assert sum(use.used_bytes for use in meter.measure(pids, wait_s=30.0)) < MIB + before


def test_a_folder_that_was_removed_counts_with_the_names_that_it_had(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(1000):
        (folder / f"{number:0200}").touch()
        (folder / f"{number:0200}").unlink()
    left = folder.stat().st_blocks * 512
    before = sum(size or 0 for size in removed_but_open((os.getpid(),), (tmp_path,)))
    held = os.open(folder, os.O_RDONLY)
    folder.rmdir()
    after = sum(size or 0 for size in removed_but_open((os.getpid(),), (tmp_path,)))
    os.close(held)
    assert after - before == left


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees what is mapped")
def test_a_file_that_was_removed_counts_while_it_is_mapped(tmp_path: Path) -> None:
    before = sum(size or 0 for size in removed_but_open((os.getpid(),), (tmp_path,)))
    fill(tmp_path / "file", 4 * MIB)
    file = os.open(tmp_path / "file", os.O_RDONLY)
    mapped = LIBC.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    os.close(file)
    (tmp_path / "file").unlink()
    held = sum(size or 0 for size in removed_but_open((os.getpid(),), (tmp_path,)))
    assert LIBC.munmap(c_void_p(mapped), 4096) == 0
    assert held - before >= 4 * MIB


def test_more_open_files_than_can_be_looked_at_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.runtime.diskuse._MOST_OPEN", 1)
    assert list(removed_but_open((os.getpid(),), (tmp_path,)))[-1] is None
