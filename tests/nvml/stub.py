"""A stub libnvidia-ml: any number of GPUs for the real pynvml, from a state file.

    library = build_stub(tmp_path)                 # gcc, about 0.3 s
    stub = StubGpus(tmp_path / "gpus.state")
    env = stub.environment(library)                # for a worker process
    monkeypatch.setenv(STATE_VARIABLE, str(stub.path))   # or for this one
    stub.add("GPU-0", total=80 * GIB)
    stub.set("GPU-0", used=30 * GIB, processes={4711: 30 * GIB})
    stub.fail(init_error=DRIVER_MISMATCH)

A change is seen by the next NVML call of every process that uses the file.
The first stub that a process loads stays: pynvml keeps one library.
"""

import os
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

from headway.units import GIB

STATE_VARIABLE = "HEADWAY_NVML_STUB_STATE"
"""Names the state file to the stub, in the environment of whatever process loads it."""

DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
DRIVER_MISMATCH = 18
UNKNOWN_ERROR = 999


def build_stub(folder: Path) -> Path:
    """Compile the stub into *folder*; its path, to be given as ``HEADWAY_NVML_LIBRARY``."""
    library = folder / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("stub.c")
    subprocess.run(
        ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1",
         "-o", str(library), str(source)],
        check=True,
    )  # fmt: skip
    return library


@dataclass(frozen=True)
class StubGpu:
    """One GPU. -1: the GPU does not offer this reading."""

    uuid: str
    name: str = "NVIDIA Stub 80GB"
    total: int = 80 * GIB
    used: int = 0
    reserved: int = 0
    util: int = 0
    """Percent."""
    temp: int = 40
    power_mw: int = 60_000
    pcie_rx: int = 0
    """KiB/s."""
    pcie_tx: int = 0
    nvlink_rx: int = -1
    """Counter, KiB."""
    nvlink_tx: int = -1
    pcie_gen: int = -1
    pcie_width: int = -1
    pcie_gen_max: int = -1
    pcie_width_max: int = -1
    nvlinks: int = -1
    """Links that are up."""
    nvlink_version: int = -1
    """NVML's number of it: 6 is version 4.0."""
    cpu_mask: int = -1
    """Of the CPUs that are nearest, bit by bit."""
    sm: int = -1
    """Activity of its multiprocessors, tensor cores and memory, percent; -1: it has no GPM."""
    tensor: int = -1
    dram: int = -1
    clock: int = -1
    """MHz."""
    clock_max: int = -1
    clock_limits: int = -1
    """nvmlClocksEventReasons."""
    mig: int = 0
    error: int = 0
    """NVML code that every call on this GPU answers; 0 for none."""
    processes: dict[int, int] = field(default_factory=dict)
    """Host pid → bytes; -1 where the driver does not say."""
    xids: tuple[int, ...] = ()
    """All that the driver has reported."""
    slices: tuple["StubGpu", ...] = ()
    """MIG slices, where `mig` is 1."""


class StubGpus:
    """The state file, and the GPUs that are in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._gpus: dict[str, StubGpu] = {}
        self._site: dict[str, int] = {}
        self._write()

    def environment(self, library: Path) -> dict[str, str]:
        """What another process needs in its environment to see these GPUs."""
        return {"HEADWAY_NVML_LIBRARY": str(library), STATE_VARIABLE: str(self.path)}

    def add(self, uuid: str, **values: object) -> None:
        """One more GPU (fields of `StubGpu`)."""
        self._gpus[uuid] = StubGpu(uuid, **values)  # type: ignore[arg-type]
        self._write()

    def set(self, uuid: str, **values: object) -> None:
        """Change fields of one GPU."""
        self._gpus[uuid] = replace(self._gpus[uuid], **values)  # type: ignore[arg-type]
        self._write()

    def report(self, uuid: str, xid: int) -> None:
        """The driver reports *xid* of one GPU."""
        self.set(uuid, xids=(*self._gpus[uuid].xids, xid))

    def remove(self, uuid: str) -> None:
        """The GPU is no longer counted."""
        del self._gpus[uuid]
        self._write()

    def fail(self, **values: int) -> None:
        """For all GPUs, such as ``init_error=``, ``hang=1``, ``limits=``: see stub.c."""
        self._site = values
        self._write()

    def limit(self, uuid: str, group: Path, most_bytes: int) -> None:
        """What a process that was killed has set."""
        folder = Path(f"{self.path}.limits")
        folder.mkdir(exist_ok=True)
        (folder / f"{uuid}:{group}".replace("/", "%")).write_text(f"0 {most_bytes}\n")

    @property
    def limits(self) -> dict[tuple[str, str], int]:
        """What control groups may have of a GPU, by its uuid and the group's directory.

        Also of groups that are gone: whoever removed one had not taken its limit back.
        """
        found = {}
        for file in Path(f"{self.path}.limits").glob("*"):
            uuid, _, group = file.name.partition(":")
            found[uuid, group.replace("%", "/")] = int(file.read_text().split()[1])
        return found

    def heal(self) -> None:
        """Take back `fail` and every GPU's own error."""
        self._site = {}
        self._gpus = {uuid: replace(gpu, error=0) for uuid, gpu in self._gpus.items()}
        self._write()

    def _write(self) -> None:
        lines = [f"{key} {value}" for key, value in self._site.items()]
        for gpu in self._gpus.values():
            lines += _section("gpu", gpu)
            for part in gpu.slices:
                lines += _section("slice", part)
        # Replaced, not rewritten: a reader sees the old file or the new one.
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        new.write_text("\n".join(lines) + "\n")
        new.replace(self.path)


def _section(kind: str, gpu: StubGpu) -> list[str]:
    lists = {"processes", "slices", "xids"}
    values = {key: value for key, value in vars(gpu).items() if key not in lists}
    return [
        kind,
        *(f"{key} {value}" for key, value in values.items()),
        *(f"process {pid} {size}" for pid, size in gpu.processes.items()),
        *(f"xid {xid}" for xid in gpu.xids),
    ]
