"""The capped log on a real file system."""

from pathlib import Path

from headway.runtime import logfile
from headway.runtime.port import LogChunk


def test_the_hole_gives_the_disk_back_and_offsets_stay(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 1_000_000)
    assert logfile.trim(path, 100_000) == 897_024  # the last multiple of 4096 before 900,000
    assert path.stat().st_size == 1_000_000
    assert path.stat().st_blocks * 512 <= 100_000 + 2 * 4096
    chunk = logfile.read_chunk(path, 10, 50)
    assert chunk == LogChunk(b"a" * 50, 897_074, 897_014)
    with path.open("ab") as log:
        log.write(b"end")
    assert logfile.read_chunk(path, 1_000_000, 50) == LogChunk(b"end", 1_000_003)


def test_a_short_log_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 100)
    assert logfile.trim(path, 100) == 0
    assert logfile.trim(tmp_path / "missing", 100) == 0
    assert logfile.read_chunk(tmp_path / "missing", 5, 100) == LogChunk(b"", 5)


def test_a_log_cut_by_its_program_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"short")
    assert logfile.read_chunk(path, 100, 100) == LogChunk(b"", 5)
