"""Limits and use of control groups, both versions, in made-up trees of files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.cgroups import Cgroups, GroupReading, MemoryLimit, cpu_shares
from headway.runtime.run_groups import RunGroups
from headway.telemetry.host import NodeHost
from headway.units import GIB, MIB


def tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def mount(root: Path, kind: str, below: str = "/", options: str = "rw") -> str:
    return f"30 20 0:25 {below} {root} rw,nosuid - {kind} cgroup {options}\n"


@pytest.fixture
def v2(tmp_path: Path) -> Cgroups:
    """A service limited to 4 GiB in a slice limited to 2 CPUs."""
    tree(
        tmp_path,
        {
            "proc/cgroup": "0::/site.slice/worker.service\n",
            "proc/mountinfo": mount(tmp_path / "fs", "cgroup2"),
            "fs/site.slice/memory.max": "max\n",
            "fs/site.slice/cpu.max": "200000 100000\n",
            "fs/site.slice/worker.service/memory.max": f"{4 * GIB}\n",
            "fs/site.slice/worker.service/memory.current": f"{3 * GIB}\n",
            "fs/site.slice/worker.service/memory.stat": f"anon 5\ninactive_file {2 * GIB}\n",
            "fs/site.slice/worker.service/cpu.max": "max 100000\n",
        },
    )
    return Cgroups(tmp_path / "proc")


def test_version_2_walks_up(v2: Cgroups) -> None:
    """File cache that can be dropped counts as available."""
    assert v2.memory_limits() == [MemoryLimit(4 * GIB, 3 * GIB)]
    assert v2.cpu_quota() == 2.0


def test_version_1_has_a_tree_for_each_controller(tmp_path: Path) -> None:
    memory, cpu = tmp_path / "memory", tmp_path / "cpu"
    tree(
        tmp_path,
        {
            "proc/cgroup": "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n",
            # As a container sees it: its own group is the mounted root.
            "proc/mountinfo": mount(memory, "cgroup", "/docker/abc", "rw,memory")
            + mount(cpu, "cgroup", "/", "rw,cpu,cpuacct"),
            "memory/memory.limit_in_bytes": f"{512 * MIB}\n",
            "memory/memory.usage_in_bytes": f"{100 * MIB}\n",
            "memory/memory.stat": f"cache 1\ntotal_inactive_file {40 * MIB}\n",
            "cpu/cpu.cfs_quota_us": "-1\n",
            "cpu/cpu.cfs_period_us": "100000\n",
            "cpu/docker/cpu.cfs_quota_us": "150000\n",
            "cpu/docker/cpu.cfs_period_us": "100000\n",
        },
    )
    groups = Cgroups(tmp_path / "proc")
    assert groups.memory_limits() == [MemoryLimit(512 * MIB, 452 * MIB)]
    assert groups.cpu_quota() == 1.5


@pytest.mark.parametrize("limit", ["9223372036854771712", "max", ""])
def test_no_limit_is_no_limit(tmp_path: Path, limit: str) -> None:
    tree(
        tmp_path,
        {
            "proc/cgroup": "4:memory:/\n",
            "proc/mountinfo": mount(tmp_path / "m", "cgroup", options="rw,memory"),
            "m/memory.limit_in_bytes": limit,
        },
    )
    assert Cgroups(tmp_path / "proc").memory_limits() == []


def test_a_machine_without_control_groups_has_no_limits(tmp_path: Path) -> None:
    groups = Cgroups(tmp_path)
    assert groups.memory_limits() == []
    assert groups.cpu_quota() is None


def test_the_host_lives_under_its_group(v2: Cgroups, tmp_path: Path) -> None:
    """The smaller of machine and group, for the total and for what is left."""
    host = NodeHost(tmp_path, proc=tmp_path / "proc")
    limited, free = host.read(), NodeHost(tmp_path, proc=tmp_path / "none").read()
    assert limited.memory_bytes == min(4 * GIB, free.memory_bytes)
    assert limited.used_bytes >= min(GIB, limited.memory_bytes)
    assert host.cpus() <= 2.0


@pytest.fixture
def groups(tmp_path: Path) -> Cgroups:
    """Those of a host with version 2 alone."""
    tree(tmp_path, {"proc/cgroup": "0::/\n", "proc/mountinfo": mount(tmp_path / "fs", "cgroup2")})
    return Cgroups(tmp_path / "proc")


def test_a_group_that_is_gone(groups: Cgroups, tmp_path: Path) -> None:
    text = mount(tmp_path / "fs", "cgroup", options="rw,memory")
    tree(tmp_path, {"v1/mountinfo": text, "v1/cgroup": "4:memory:/\n"})
    for each in (groups, Cgroups(tmp_path / "v1")):
        assert each.pids("/headway/gone") == ()
        assert each.read("/headway/gone") is None
        each.remove("/headway/gone")


def test_version_2_is_read(groups: Cgroups, tmp_path: Path) -> None:
    """From files of the kernel's form: this suite's machines may have version 1 only."""
    top = "fs/headway/run"
    tree(
        tmp_path,
        {
            f"{top}/engine/cgroup.procs": "11\n12\n",
            f"{top}/cgroup.procs": "",
            f"{top}/memory.peak": "4096\n",
            f"{top}/memory.current": "1024\n",
            f"{top}/memory.stat": "anon 512\nfile 256\nshmem 64\nslab_reclaimable 16\n",
            f"{top}/cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
        },
    )
    assert groups.read("/headway/run") == GroupReading(4096, 1024, droppable_bytes=208, cpu_s=1.5)
    # The engine's group below it knows of more cache: the kernel has not yet added it up.
    stat = "anon 512\nfile 900\nshmem 64\nslab_reclaimable 16\n"
    tree(tmp_path, {f"{top}/engine/memory.stat": stat})
    assert groups.read("/headway/run") == GroupReading(4096, 1024, droppable_bytes=852, cpu_s=1.5)
    assert groups.pids("/headway/run") == (11, 12)


def test_version_1_is_read(tmp_path: Path) -> None:
    memory, accounts = tmp_path / "memory", tmp_path / "cpuacct"
    mounts = mount(memory, "cgroup", options="rw,memory")
    tree(
        tmp_path,
        {
            "proc/cgroup": "4:memory:/\n5:cpuacct:/\n",
            "proc/mountinfo": mounts + mount(accounts, "cgroup", options="rw,cpuacct"),
            "memory/run/memory.max_usage_in_bytes": "4096\n",
            "memory/run/memory.usage_in_bytes": "1024\n",
            "memory/run/memory.stat": "cache 1\ntotal_cache 256\ntotal_shmem 64\n",
            "cpuacct/run/cpuacct.usage": "1500000000\n",
        },
    )
    found = Cgroups(tmp_path / "proc").read("/run")
    assert found == GroupReading(4096, 1024, droppable_bytes=192, cpu_s=1.5)


def test_cpus_are_a_weight_in_both_versions(groups: Cgroups, tmp_path: Path) -> None:
    text = mount(tmp_path / "cpu", "cgroup", options="rw,cpu") + mount(tmp_path / "fs2", "cgroup2")
    tree(tmp_path, {"v1/mountinfo": text, "v1/cgroup": "4:cpu:/\n"})
    (tmp_path / "fs").mkdir()
    first = Cgroups(tmp_path / "v1")
    for each in (first, groups):
        each.weigh("/headway/run", 2.5)
    assert (tmp_path / "cpu/headway/run/cpu.shares").read_text() == "2560"
    assert (tmp_path / "fs/headway/run/cpu.weight").read_text() == "250"
    for parent in ("fs", "fs/headway"):
        assert (tmp_path / parent / "cgroup.subtree_control").read_text() == "+cpu"
    assert not (tmp_path / "fs/headway/run/cgroup.subtree_control").exists()  # it has processes
    assert groups.door("/headway/run") == tmp_path / "fs/headway/run/cgroup.procs"
    assert first.door("/headway/run") == tmp_path / "cpu/headway/run/cgroup.procs"


@pytest.mark.parametrize(
    "make",
    [
        lambda groups: groups.weigh("/headway/run", 1.0),
        lambda groups: groups.freezable("/headway/run"),
    ],
)
def test_a_group_can_be_passed_whatever_the_umask_is(
    groups: Cgroups, tmp_path: Path, make: Callable[[Cgroups], object]
) -> None:
    """An engine that remaps users looks at it as nobody in particular."""
    (tmp_path / "fs").mkdir()
    before = os.umask(0o077)
    try:
        make(groups)
    finally:
        os.umask(before)
    for group in ("fs/headway", "fs/headway/run"):
        assert (tmp_path / group).stat().st_mode & 0o777 == 0o755


def test_a_group_for_limits_of_gpus_accounts_for_their_memory_where_the_kernel_can(
    groups: Cgroups, tmp_path: Path
) -> None:
    tree(tmp_path, {"fs/cgroup.controllers": "cpu memory\n"})
    folder = tmp_path / "fs/headway/run"
    assert groups.have_unified("/headway/run") == folder
    assert folder.is_dir()
    assert not (tmp_path / "fs/headway/cgroup.subtree_control").exists()
    tree(tmp_path, {"fs/cgroup.controllers": "cpu dmem memory\n"})
    groups.have_unified("/headway/run")
    for parent in ("fs", "fs/headway"):
        assert (tmp_path / parent / "cgroup.subtree_control").read_text() == "+dmem"
    assert not (folder / "cgroup.subtree_control").exists()
    tree(tmp_path, {"v1/mountinfo": mount(tmp_path / "m", "cgroup", options="rw,memory")})
    assert Cgroups(tmp_path / "v1").have_unified("/headway/run") is None


def test_no_group_goes_before_its_limits_are_let_go(tmp_path: Path) -> None:
    tree(tmp_path, {"proc/cgroup": "0::/\n", "proc/mountinfo": mount(tmp_path / "fs", "cgroup2")})
    gone: list[str] = []

    def let_go(folder: Path) -> None:
        assert folder.is_dir()
        gone.append(folder.name)

    runs = RunGroups("site", let_go=let_go)
    runs.cgroups = Cgroups(tmp_path / "proc")
    (tmp_path / "fs").mkdir()
    for name in ("one", "two", "three"):
        assert runs.gpu_group(name) == tmp_path / "fs/headway" / f"site-{name}"
    for name in ("small", "left"):  # which no driver limits: for them none is asked
        (tmp_path / "fs/headway" / f"site-{name}").mkdir(mode=0o755)
    runs.remove("small")
    runs.remove("one")
    runs.remove("one")
    runs.sweep(lambda: {"two"})
    assert gone == ["site-one", "site-three"]
    assert runs.left() == {"two"}


def test_a_weight_stays_within_what_the_kernel_takes(groups: Cgroups, tmp_path: Path) -> None:
    (tmp_path / "fs").mkdir()
    for cpus, weight in ((0.001, "1"), (500.0, "10000")):
        groups.weigh("/headway/run", cpus)
        assert (tmp_path / "fs/headway/run/cpu.weight").read_text() == weight
    assert [cpu_shares(cpus) for cpus in (0.001, 0.5, 1.0, 9999.0)] == [2, 512, 1024, 262_144]


def test_the_system_keeps_its_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs together weigh the rest against it; about one CPU where none is set."""
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    said: dict[str, float] = {}
    for reserve_cpus, above in ((4.0, 3.0), (0.0, 16.0), (0.5, 15.5), (99.0, 1 / 99)):
        runs = RunGroups("site", reserve_cpus)
        monkeypatch.setattr(runs.cgroups, "weigh", said.__setitem__)
        assert runs.weigh("run-1", 2.0)
        assert said == {"/headway": pytest.approx(above), "/headway/site-run-1": 2.0}


def test_where_nothing_can_be_weighed_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    runs = RunGroups("site")
    monkeypatch.setattr(runs.cgroups, "weigh", refuse)
    assert not runs.weigh("run-1", 2.0)


def test_version_1_counts_what_waits_in_connections_by_a_limit_of_its_own(tmp_path: Path) -> None:
    proc = {"cgroup": "4:memory:/\n", "mountinfo": mount(tmp_path / "m", "cgroup", "/", "memory")}
    limit = "memory.kmem.tcp.limit_in_bytes"
    tree(tmp_path / "proc", proc)
    tree(tmp_path / "m/headway/run/inner", {limit: "9"})
    Cgroups(tmp_path / "proc").limit_connections("/headway/run/inner", 48 * MIB)
    assert (tmp_path / "m/headway/run/inner" / limit).read_text() == str(48 * MIB)
    Cgroups(tmp_path / "proc").limit_connections("/headway/other", 48 * MIB)
    assert not (tmp_path / "m/headway/other" / limit).exists()


def test_version_2_freezes_and_thaws(v2: Cgroups, tmp_path: Path) -> None:
    group = tmp_path / "fs" / "headway" / "run"
    tree(group, {"cgroup.freeze": "0", "cgroup.events": "populated 1\nfrozen 1\n"})
    with v2.frozen("/headway/run") as is_frozen:
        assert is_frozen
        assert (group / "cgroup.freeze").read_text() == "1"
    assert (group / "cgroup.freeze").read_text() == "0"
    with v2.frozen("/headway/another") as is_frozen:
        assert not is_frozen
