"""What is known of networks and GPUs before anything was run: tables with their sources.

The tables are CSV files in ``headway/estimate/data``; files of the same names
and columns in a directory of the site's add to them and win over them.
"""

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path

from headway.errors import InvalidInput
from headway.estimate.features import Configuration
from headway.units import GIB

_NOISE = frozenset({"nvidia", "tesla", "quadro", "geforce", "graphics", "gpu", "device", "the"})


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU, as its maker describes it."""

    fp32_flops_per_s: float
    half_flops_per_s: float
    """At 16 bits, on tensor cores where it has them."""
    memory_bytes: float
    bandwidth_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """One network at its usual input size; None where no source says."""

    flops: float | None
    """Multiply-adds of one sample's forward pass."""
    params: float | None
    activations: float | None
    """Elements of all layers' outputs for one sample."""
    layers: float | None


@dataclass(frozen=True, slots=True)
class Tables:
    """Facts by normalised name."""

    gpus: dict[str, GpuFacts] = field(default_factory=dict)
    networks: dict[str, NetworkFacts] = field(default_factory=dict)

    def gpu_name(self, product: str) -> str:
        """*product* as traces name it: ``NVIDIA GeForce RTX 2080 Ti`` is ``rtx2080ti``.

        A product that the table does not have keeps its own words, so that it
        is the same each time.
        """
        words = [w for w in re.findall(r"[a-z0-9]+", product.lower()) if w not in _NOISE]
        spelt = {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, i + 4)}
        fitting = [name for name in self.gpus if set(name.split("-")) <= spelt]
        return max(fitting, key=lambda name: (len(name), name)) if fitting else "-".join(words)

    def complete(self, configuration: Configuration) -> Configuration:
        """*configuration* with its GPU's short name, and what is known of GPU and network.

        What it brings itself wins; a network that brings anything is left as
        it is, since two sources may count operations differently.
        """
        c = replace(configuration, gpu_type=self.gpu_name(configuration.gpu_type))
        network = self.networks.get(_plain(c.network))
        own = (c.flops, c.params, c.activations, c.layers)
        if network is not None and own == (None, None, None, None):
            c = replace(
                c,
                flops=network.flops,
                params=network.params,
                activations=network.activations,
                layers=network.layers,
            )
        gpu = self.gpus.get(c.gpu_type)
        if gpu is None:
            return c
        half = c.precision != "fp32"
        return replace(
            c,
            gpu_flops_per_s=gpu.half_flops_per_s if half else gpu.fp32_flops_per_s,
            gpu_memory_bytes=gpu.memory_bytes,
            gpu_bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s,
        )


@cache
def shipped() -> Tables:
    """The tables that come with headway."""
    data = resources.files("headway.estimate") / "data"
    gpus, networks = (
        list(csv.DictReader((data / name).read_text(encoding="utf-8").splitlines()))
        for name in ("gpus.csv", "networks.csv")
    )
    return _tables(gpus, "gpus.csv", networks, "networks.csv")


def with_site(directory: Path) -> Tables:
    """The shipped tables, with ``gpus.csv`` and ``networks.csv`` of *directory* added.

    Raises:
        InvalidInput: A row of those files has no name or no number.
    """
    rows = []
    for name in ("gpus.csv", "networks.csv"):
        path = directory / name
        text = path.read_text(encoding="utf-8-sig") if path.is_file() else ""
        rows.append(list(csv.DictReader(text.splitlines())))
    more = _tables(rows[0], str(directory / "gpus.csv"), rows[1], str(directory / "networks.csv"))
    base = shipped()
    return Tables({**base.gpus, **more.gpus}, {**base.networks, **more.networks})


def _tables(
    gpus: Sequence[dict[str, str]], gpus_at: str, networks: Sequence[dict[str, str]], at: str
) -> Tables:
    found = Tables()
    for line, row in enumerate(gpus, 2):
        where = f"{gpus_at}:{line}"
        found.gpus[_name(row, "gpu_type", where)] = GpuFacts(
            _number(row, "fp32_tflops", where) * 1e12,
            _number(row, "half_tflops", where) * 1e12,
            _number(row, "memory_gib", where) * GIB,
            _number(row, "bandwidth_gb_s", where) * 1e9,
        )
    for line, row in enumerate(networks, 2):
        where = f"{at}:{line}"
        flops, params, activations, layers = (
            _number(row, column, where) if row.get(column) else None
            for column in ("flops", "params", "activations", "layers")
        )
        name = _plain(_name(row, "network", where))
        found.networks[name] = NetworkFacts(flops, params, activations, layers)
    return found


def _plain(network: str) -> str:
    """*network* as ``resnet50``, however it is hyphenated."""
    return re.sub(r"[^a-z0-9]", "", network.lower())


def _name(row: dict[str, str], column: str, where: str) -> str:
    name = (row.get(column) or "").strip().lower()
    if not name:
        raise InvalidInput(column, name, "give a name", where=where)
    return name


def _number(row: dict[str, str], column: str, where: str) -> float:
    text = row.get(column) or ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InvalidInput(column, text, "give a number above 0", where=where)
    return value
