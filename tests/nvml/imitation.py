"""NVIDIA's own imitation of NVML (`nvidia/`), as GPUs that a test changes while programs run.

    gpus = ImitatedGpus(tmp_path, ["GPU-a", "GPU-b"])
    env = gpus.environment()                  # for a worker process
    with elsewhere(gpus) as sensors: ...      # `NvmlGpus` in a process of its own
    gpus.set("GPU-a", ecc_uncorrectable(48))

pynvml keeps one library a process, and the stub may be that one here.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from headway.telemetry.gpu import NvmlGpus

LIBRARY = Path(__file__).with_name("nvidia") / "libnvidia-ml.so.1"
_PROFILE = LIBRARY.with_name("h100.yaml")

Document = dict[str, Any]


def ecc_uncorrectable(xid: int) -> Document:
    """Uncorrectable errors that grow with each call, a row that could not be remapped, an Xid."""
    return {"failure": {"mode": "ecc_uncorrectable", "xid": {"code": xid}}}


LOST: Document = {"failure": {"mode": "lost"}}
OFF_THE_BUS: Document = {"failure": {"mode": "fallen_off_bus", "xid": {"code": 79}}}


class ImitatedGpus:
    """H100s of the imitation, in the files that it reads anew."""

    def __init__(self, folder: Path, uuids: Sequence[str]) -> None:
        self._config, self._overrides = folder / "config.yaml", folder / "overrides.yaml"
        self._index = {uuid: str(index) for index, uuid in enumerate(uuids)}
        self._devices: dict[str, Document] = {}
        profile = yaml.safe_load(_PROFILE.read_text())
        profile["system"]["num_devices"] = len(uuids)
        profile["devices"] = [
            {**device, "uuid": uuid}
            for device, uuid in zip(profile["devices"], uuids, strict=False)
        ]
        self._free_bytes = profile["device_defaults"]["memory"]["free_bytes"]
        self._config.write_text(json.dumps(profile))
        self._write()

    def environment(self) -> dict[str, str]:
        """What another process needs in its environment to see these GPUs."""
        return {
            "HEADWAY_NVML_LIBRARY": str(LIBRARY),
            "MOCK_NVML_CONFIG": str(self._config),
            "MOCK_NVML_OVERRIDES": str(self._overrides),
            "MOCK_NVML_OVERRIDES_TTL": "1ns",
        }

    def set(self, uuid: str, *documents: Document) -> None:
        """Change sections of one GPU's profile; a section stays changed until `heal`."""
        of_gpu = self._devices.setdefault(self._index[uuid], {})
        for document in documents:
            of_gpu.update(document)
        self._write()

    def use(self, uuid: str, used_bytes: int) -> None:
        """Memory in use by programs."""
        free_bytes = self._free_bytes - used_bytes
        self.set(uuid, {"memory": {"used_bytes": used_bytes, "free_bytes": free_bytes}})

    def heal(self, *uuids: str) -> None:
        """These GPUs are again as their profile says; without any, all."""
        for uuid in uuids or self._index:
            self._devices.pop(self._index[uuid], None)
        self._write()

    def _write(self) -> None:
        # Replaced, not rewritten: a reader sees the old file or the new one.
        new = self._overrides.with_suffix(".new")
        new.write_text(json.dumps({"devices": self._devices}))
        new.replace(self._overrides)


class _Process(BaseManager):
    pass


_Process.register("Gpus", NvmlGpus)


@contextmanager
def elsewhere(gpus: ImitatedGpus, deadline_s: float = 5.0) -> Iterator[Any]:
    """The real adapter and the real pynvml over the imitation, in a process of its own."""
    with patch.dict(os.environ, gpus.environment()):
        process = _Process(ctx=get_context("spawn"))
        process.start()
    try:
        yield process.Gpus(LIBRARY, deadline_s=deadline_s)  # type: ignore[attr-defined] # registered
    finally:
        process.shutdown()
