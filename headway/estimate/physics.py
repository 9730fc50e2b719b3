"""What is known of networks and GPUs before anything was run: tables with their sources.

The tables are CSV files in ``headway/estimate/data``; files of the same names
and columns in a directory of the site's add to them and win over them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from headway.estimate.features import Configuration
from headway.estimate.names import gpu_words, network_spellings, plain_network
from headway.estimate.row_files import read_rows
from headway.units import GIB

_OTHER_CHIP = frozenset({"ada", "ampere", "blackwell", "pro", "rubin", "turing"})
"""After one of these words the same number is another chip, of which nothing is known."""
_SLICE = re.compile(r"([1-7])g")
_SLICES = {"a30": 4}
"""Compute slices of a GPU that is partitioned (MIG); all others have seven."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU, as its maker describes it."""

    fp32_flops_per_s: float
    half_flops_per_s: float
    """At 16 bits, on tensor cores where it has them."""
    memory_bytes: float
    bandwidth_bytes_per_s: float
    words: frozenset[str] = frozenset()
    """Of its name; a product that lacks one is another GPU."""
    implied: frozenset[str] = frozenset()
    """What a product name may say besides of this same GPU, such as its form or memory."""


_Name = Annotated[str, StringConstraints(min_length=1, to_lower=True)]
_Number = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class NetworkFacts(BaseModel, frozen=True):
    """One network at its usual input size, a row of the table; None where no source says."""

    network: _Name
    also: str = ""
    """Other spellings, with spaces between."""
    flops: _Number | None = None
    """Multiply-adds of one sample's forward pass."""
    params: _Number | None = None
    activations: _Number | None = None
    """Elements of all layers' outputs for one sample."""
    layers: _Number | None = None
    tokens: _Number | None = None
    """For so many tokens a sample; None where a sample is no text."""

    def at_length(self, tokens: float | None) -> "NetworkFacts":
        """The same for samples of so many tokens; all of a layer but its attention grows alike."""
        if self.tokens is None or tokens is None:
            return self
        times = tokens / self.tokens
        flops, activations = self.flops and self.flops * times, self.activations
        more = {"flops": flops, "activations": activations and activations * times}
        return self.model_copy(update={**more, "tokens": tokens})


@dataclass(frozen=True, slots=True)
class Tables:
    """Facts by normalised name."""

    gpus: dict[str, GpuFacts] = field(default_factory=dict)
    networks: dict[str, NetworkFacts] = field(default_factory=dict)
    _gpus_asked: dict[str, tuple[str, GpuFacts | None, bool]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Answers given: thousands of traces have the same few GPUs."""

    def gpu_name(self, product: str) -> str:
        """*product* as traces name it: ``NVIDIA GeForce RTX 2080 Ti`` is ``rtx2080ti``.

        A product that the table does not have, be it by one word, is a type of
        its own and keeps its own words, so that it is the same each time.
        """
        return self.find_gpu(product)[0]

    def find_gpu(self, product: str) -> tuple[str, GpuFacts | None, bool]:
        """Name of *product*, what is known of it, and whether that is only its nearest relative's.

        Of a partition (MIG) it is the share that its profile names.
        """
        if product not in self._gpus_asked:
            words = gpu_words(product)
            nearest, more = self._nearest(words)
            facts = self.gpus.get(nearest) if not _OTHER_CHIP & set(more) else None
            self._gpus_asked[product] = (
                "-".join((nearest, *more) if nearest else words),
                facts and _part_of(facts, more, _SLICES.get(nearest, 7)),
                facts is not None and bool(more),
            )
        return self._gpus_asked[product]

    def _nearest(self, words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """The GPU of the table that *words* name, and those of them that it does not explain.

        With no words left over they name just that GPU. '' when the table has
        none that they could name.
        """
        said, found = set(words), []
        for name, facts in self.gpus.items():
            if facts.words <= said:
                more = tuple(w for w in words if w not in facts.words | facts.implied)
                found.append((not more, len(facts.words), -len(more), name, more))
        return max(found)[3:] if found else ("", ())

    def basis(self, product: str) -> str:
        """Where what is known of *product* comes from, for people."""
        _, facts, is_guessed = self.find_gpu(product)
        if facts is None:
            return "unknown"
        return "data sheet of its nearest relative" if is_guessed else "data sheet"

    def network_facts(self, network: str) -> NetworkFacts | None:
        """What is known of *network*, whatever task or framework its name tells besides."""
        known = (self.networks.get(spelling) for spelling in network_spellings(network))
        return next(filter(None, known), None)

    def complete(self, configuration: Configuration) -> Configuration:
        """*configuration* as models see it: its names in one spelling, with what is known of them.

        What it brings itself wins; a network that brings anything is left as
        it is, since two sources may count operations differently.
        """
        name, gpu, is_guessed = self.find_gpu(configuration.gpu_type)
        c = replace(
            configuration,
            gpu_type=name,
            network=plain_network(configuration.network),
        )
        network = self.network_facts(configuration.network)
        own = (c.flops, c.params, c.activations, c.layers)
        if network is not None and own == (None, None, None, None):
            n = network.at_length(tokens_of(c.settings))
            c = replace(c, flops=n.flops, params=n.params, layers=n.layers)
            c = replace(c, activations=n.activations)
        if gpu is None:
            return c
        half = c.precision != "fp32"
        return replace(
            c,
            gpu_flops_per_s=gpu.half_flops_per_s if half else gpu.fp32_flops_per_s,
            gpu_memory_bytes=gpu.memory_bytes,
            gpu_bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s,
            gpu_is_guessed=is_guessed,
        )


_LENGTHS = re.compile(
    "--(?:(?:max-)?seq(?:uence)?-?len(?:gth)?|(?:model-)?max-length|block-size|context-length)"
)
"""Options by which trainers of language models are told the tokens of a sample."""


def tokens_of(settings: Mapping[str, float]) -> float | None:
    """How many tokens a sample of text has by the *settings* of a command; None: not said."""
    said = (n for name, n in settings.items() if _LENGTHS.fullmatch(name.replace("_", "-").lower()))
    return next((tokens for tokens in said if 1 <= tokens <= 1e7), None)


def _part_of(facts: GpuFacts, more: Sequence[str], slices: int) -> GpuFacts:
    """What a partition (MIG) has of a GPU, by the profile among the words *more*, as ``1g 5gb``."""
    share = next((int(found[1]) for word in more if (found := _SLICE.fullmatch(word))), None)
    if share is None:
        return facts
    gib = next((float(word[:-2]) for word in more if word.endswith("gb")), None)
    of_memory = gib * GIB / facts.memory_bytes if gib else share / slices
    return replace(
        facts,
        fp32_flops_per_s=facts.fp32_flops_per_s * share / slices,
        half_flops_per_s=facts.half_flops_per_s * share / slices,
        memory_bytes=facts.memory_bytes * of_memory,
        bandwidth_bytes_per_s=facts.bandwidth_bytes_per_s * of_memory,
    )


@cache
def shipped() -> Tables:
    """The tables that come with headway."""
    data = resources.files("headway.estimate") / "data"
    return Tables(
        _gpus((data / "gpus.csv").read_bytes(), "gpus.csv"),
        _networks((data / "networks.csv").read_bytes(), "networks.csv"),
    )


def with_site(directory: Path) -> Tables:
    """The shipped tables, then ``gpus.csv``, ``networks.csv`` in *directory*, which win.

    Raises:
        InvalidInput: A row of those files has no name or no number.
    """
    gpus, networks = directory / "gpus.csv", directory / "networks.csv"
    base = shipped()
    more = _gpus(gpus.read_bytes(), str(gpus)) if gpus.is_file() else {}
    for name in base.gpus.keys() & more.keys():
        # The site's numbers; what the GPU is called besides it need not know.
        more[name] = replace(more[name], implied=more[name].implied or base.gpus[name].implied)
    own = _networks(networks.read_bytes(), str(networks)) if networks.is_file() else {}
    return Tables({**base.gpus, **more}, {**base.networks, **own})


class _GpuRow(BaseModel):
    gpu_type: _Name
    fp32_tflops: _Number
    half_tflops: _Number
    memory_gib: _Number
    bandwidth_gb_s: _Number
    implied: str = ""


def _gpus(data: bytes, name: str) -> dict[str, GpuFacts]:
    needed = [column for column in _GpuRow.model_fields if column != "implied"]
    return {
        row.gpu_type: GpuFacts(
            row.fp32_tflops * 1e12,
            row.half_tflops * 1e12,
            row.memory_gib * GIB,
            row.bandwidth_gb_s * 1e9,
            frozenset(gpu_words(row.gpu_type)),
            frozenset(row.implied.lower().split()),
        )
        for _, row in read_rows(data, name).rows(_GpuRow, needed, ("implied",))
    }


def _networks(data: bytes, name: str) -> dict[str, NetworkFacts]:
    optional = [column for column in NetworkFacts.model_fields if column != "network"]
    return {
        plain_network(spelling): facts
        for _, facts in read_rows(data, name).rows(NetworkFacts, ("network",), optional)
        for spelling in (facts.network, *facts.also.split())
    }
