"""Control groups that end while they are looked at."""

from pathlib import Path

from headway.runtime.cgroups import Hierarchy
from headway.runtime.held import Reading


def test_a_group_that_is_gone(tmp_path: Path) -> None:
    for groups in (Hierarchy(tmp_path, {}), Hierarchy(None, {"memory": tmp_path})):
        assert groups.pids("/headway/gone") == ()
        assert groups.read("/headway/gone") is None
        groups.remove("/headway/gone")


def test_version_2_is_read(tmp_path: Path) -> None:
    """From files of the kernel's form: this suite's machines may have version 1 only."""
    folder = tmp_path / "headway/run/engine"
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text("11\n12\n")
    top = folder.parent
    (top / "cgroup.procs").write_text("")
    (top / "memory.peak").write_text("4096\n")
    (top / "memory.current").write_text("1024\n")
    (top / "memory.stat").write_text("anon 512\nfile 256\nshmem 64\nslab_reclaimable 16\n")
    (top / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    groups = Hierarchy(tmp_path, {})
    held = groups.read("/headway/run")
    assert held == Reading(4096, 1024, droppable_bytes=208, cpu_s=1.5)
    # The engine's group below it knows of more cache: the kernel has not yet added it up.
    (folder / "memory.stat").write_text("anon 512\nfile 900\nshmem 64\nslab_reclaimable 16\n")
    assert groups.read("/headway/run") == Reading(4096, 1024, droppable_bytes=852, cpu_s=1.5)
    assert groups.pids("/headway/run") == (11, 12)
