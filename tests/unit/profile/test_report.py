"""Reading what nsys exports, and what only pretends to be that."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headway.clock import SystemClock
from headway.errors import ProfileUnreadable
from headway.model.link import GpuLinks, NvLink, Pcie
from headway.model.profile import Direction, Profile
from headway.profile import report
from headway.profile.report import read_report
from headway.profile.text import copies_text, rows
from tests.support.nsys_export import DEVICE, DTOD, DTOH, HTOD, PAGEABLE, PINNED, PTOP, Export

A100 = GpuLinks("GPU-a", Pcie(4, 16), Pcie(4, 16), NvLink("3.0", 12))


@pytest.fixture(params=["2022.4", "2025"])
def export(request: pytest.FixtureRequest, tmp_path: Path) -> Export:
    return Export(tmp_path / "report.sqlite", request.param)


def read(export: Export, *links: GpuLinks) -> Profile:
    return read_report(export.path, links, SystemClock())


def test_a_recorded_run_of_an_a100(export: Export) -> None:
    export.a100()
    profile = read(export, A100)
    assert [(k.name, k.launches) for k in profile.kernels] == [
        ("par_ranged2d_kernel", 4),
        ("par_reduce_kernel", 1),
        ("par_ranged1d_kernel", 4),
    ]
    assert profile.kernels_s == pytest.approx(0.004534996)
    assert profile.window_s == pytest.approx(0.013998586)
    into, out = profile.copies
    assert (into.count, into.size_bytes) == (8, 7_379_200)
    # Summed by hand: 305,311 ns.
    assert into.busy_s == pytest.approx(305_311e-9)
    assert copies_text(into) == "HtoD 24.2 of 31.5 GB/s (77 %), 7.0 MiB in 305 µs"
    assert (out.direction, out.count, out.size_bytes) == (Direction.DEVICE_TO_HOST, 3, 6144)


def test_copies_are_told_apart_by_direction(export: Export) -> None:
    export.gpu(1_555_000_000_000)
    export.copy(HTOD, 0, 10**9, 9 * 10**9, srcKind=PAGEABLE, dstKind=DEVICE)
    export.copy(HTOD, 10**9, 2 * 10**9, 9 * 10**9, srcKind=PINNED, dstKind=DEVICE)
    export.copy(11, 10**9, 10**9, 0)  # unified memory counts with its direction
    export.copy(DTOH, 0, 10**9, 2 * 10**9, srcKind=DEVICE, dstKind=PINNED)
    export.copy(DTOD, 0, 10**9, 400 * 10**9, srcDeviceId=0, dstDeviceId=0)
    export.copy(DTOD, 0, 10**9, 100 * 10**9, srcDeviceId=0, dstDeviceId=1)  # a peer after all
    export.copy(PTOP, 0, 10**9, 100 * 10**9)
    export.copy(9, 0, 10**9, 10**9)  # host to host: none of the GPU's business
    profile = read(export, A100)
    assert [copies_text(each) for each in profile.copies] == [
        "HtoD 9.0 of 31.5 GB/s (29 %), 16.8 GiB in 2.0 s, 50 % of it through pageable memory",
        "DtoH 2.0 of 31.5 GB/s (6 %), 1.9 GiB in 1.0 s",
        "DtoD 400.0 of 777.5 GB/s (51 %), 372.5 GiB in 1.0 s",
        "PtoP 100.0 of 300.0 GB/s (33 %), 186.3 GiB in 2.0 s",
    ]
    assert [each.link for each in profile.copies] == [
        "PCIe 4 x16", "PCIe 4 x16", "memory", "NVLink 3.0 x12",
    ]  # fmt: skip
    assert profile.copies[0].count == 3


def test_the_slowest_gpu_is_the_limit_and_its_link_is_named(export: Export) -> None:
    export.copy(HTOD, 0, 10**9, 9 * 10**9)
    slow = GpuLinks("GPU-b", Pcie(1, 16), Pcie(3, 16))
    profile = read(export, A100, slow)
    assert copies_text(profile.copies[0]) == "HtoD 9.0 of 15.8 GB/s (57 %), 8.4 GiB in 1.0 s"
    (note,) = profile.notes
    assert note.startswith("GPU-b was at PCIe 1 x16 (4.0 GB/s) of PCIe 3 x16 (15.8 GB/s): an idle")


def test_missing_lanes_are_no_power_saving(export: Export) -> None:
    (note,) = read_notes(export, GpuLinks("GPU-b", Pcie(4, 8), Pcie(4, 16)))
    assert "fewer lanes" in note


def read_notes(export: Export, links: GpuLinks) -> tuple[str, ...]:
    export.copy(HTOD, 0, 10**9, 10**9)
    return read(export, links).notes


def test_without_links_there_is_a_rate_and_no_limit(export: Export) -> None:
    export.copy(HTOD, 0, 10**9, 9 * 10**9)
    assert copies_text(read(export).copies[0]) == "HtoD 9.0 GB/s, 8.4 GiB in 1.0 s"


def test_cuda_graphs_count_as_a_kernel_of_their_own(tmp_path: Path) -> None:
    export = Export(tmp_path / "report.sqlite", "2025")
    export.kernel("gemm", 0, 10**6)
    export.sql(
        "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (0, 3000000, 0, 1, 0, 7, 1, 1, 1, 1)"
    )
    assert [k.name for k in read(export).kernels] == ["(CUDA graphs)", "gemm"]


def test_only_the_kernels_that_matter_are_listed_but_all_are_summed(export: Export) -> None:
    for number in range(30):
        export.kernel(f"kernel_{number}", 0, (number + 1) * 10**6)
    profile = read(export)
    assert len(profile.kernels) == 10
    assert profile.kernels[0].name == "kernel_29"
    assert profile.kernels_s == pytest.approx(sum(range(1, 31)) / 1e3)


def test_a_program_without_cuda_has_an_empty_profile(tmp_path: Path) -> None:
    profile = read(Export(tmp_path / "report.sqlite", ""))
    assert (profile.copies, profile.kernels) == ((), ())
    assert "used no CUDA" in profile.notes[-1]


def test_damaged_rows_are_left_out(export: Export) -> None:
    export.copy(HTOD, 0, 10**9, 10**9)
    export.copy(HTOD, 2 * 10**9, 10**9, 10**9)  # ends before it starts
    export.copy(HTOD, -5, 10**9, 10**9)
    export.copy(HTOD, 0, 2**62, 10**9)
    export.copy(HTOD, 0, 10**9, -1)
    export.copy(HTOD, 0, 10**9, 2**62)
    export.copy(77, 0, 10**9, 1)
    export.copy(HTOD, "x", "y", 1)  # type: ignore[arg-type]
    (into,) = read(export).copies
    assert (into.count, into.size_bytes) == (1, 10**9)


def test_a_name_cannot_write_on_the_terminal_or_fill_the_page(export: Export) -> None:
    export.kernel("\x1b[2J" + "x" * 5000, 0, 10)
    (kernel,) = read(export).kernels
    assert "\x1b" not in kernel.name
    assert len(kernel.name) <= 200
    assert rows(read(export))


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(5000))


def _truncated(path: Path) -> None:
    Export(path).a100()
    path.write_bytes(path.read_bytes()[:9000])


def _empty(path: Path) -> None:
    path.touch()


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript("CREATE TABLE mine (a); INSERT INTO mine VALUES (1);")


def _link(path: Path) -> None:
    Export(path.with_name("other.sqlite"))
    path.symlink_to("other.sqlite")


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _missing(path: Path) -> None:
    path.unlink(missing_ok=True)


def _long(path: Path) -> None:
    """Many rows: not too long to read, but longer than no time at all."""
    export = Export(path, "")
    export.sql(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, bytes INTEGER, "
        "copyKind INTEGER); "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) "
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY SELECT 0, i, i, 1 FROM n;"
    )


@pytest.mark.parametrize(
    "make",
    [_garbage, _truncated, _empty, _foreign, _link, _pipe, _missing],
    ids=lambda f: f.__name__,
)
def test_what_is_no_report_says_so(tmp_path: Path, make) -> None:
    path = tmp_path / "report.sqlite"
    make(path)
    with pytest.raises(ProfileUnreadable, match="the run is not touched"):
        read_report(path, (), SystemClock())


def test_a_report_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch) -> None:
    _long(tmp_path / "report.sqlite")
    assert read_report(tmp_path / "report.sqlite", (), SystemClock()).copies
    monkeypatch.setattr(report, "MAX_S", 0.0)
    with pytest.raises(ProfileUnreadable, match="interrupted"):
        read_report(tmp_path / "report.sqlite", (), SystemClock())


def test_a_report_that_is_too_large_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    Export(path)
    os.truncate(path, report.MAX_BYTES + 1)  # sparse
    with pytest.raises(ProfileUnreadable, match="bytes"):
        read_report(path, (), SystemClock())


def test_a_view_in_place_of_a_table_is_not_asked(tmp_path: Path) -> None:
    export = Export(tmp_path / "report.sqlite", "")
    export.sql(
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT i AS start, i AS end, 1 AS shortName FROM n"
    )
    assert read(export).kernels == ()
