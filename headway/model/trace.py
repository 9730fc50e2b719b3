"""A trace: what a finished run measured, from which estimators learn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headway.units import DAY_S

LONGEST_S = 100 * 365 * DAY_S
"""No training run takes a century: such a number is in another unit, or no time."""
UTILISATION = "gpu_utilisation_frac"
"""Metric of a trace: mean share of time in which its GPUs were busy, nobody else being on them."""
AFTER = "after_count_s"
"""The same: seconds that it went on after the first total that it told was reached."""
EPOCHS_DONE = "epochs_done"
"""The same: epochs that it came to, by what it told."""


@dataclass(frozen=True, slots=True)
class Beside:
    """How much longer a run took while one other was on its GPU."""

    network: str
    """Of the other one; its recipe, where it names none."""
    batch_size: int | None
    team: str
    """Whose that was; empty for what all may know."""
    times: float
    """A step took so many times as long as alone."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One finished run, or one imported measurement."""

    network: str
    gpu_type: str
    """Normalised product name, such as ``v100``; ``cpu`` when no GPU was used."""
    gpus: int
    batch_size: int | None
    """Per GPU; None where the program has none."""
    iteration_s: float | None = None
    epoch_s: float | None = None
    runtime_s: float | None = None
    samples_per_s: float | None = None
    nodes: int = 1
    precision: str = "fp32"
    framework: str = ""
    data_threads: int | None = None
    dataset_bytes: int | None = None
    dataset_samples: int | None = None
    epochs: float | None = None
    iterations: int | None = None
    host_peak_bytes: int | None = None
    gpu_peak_bytes: int | None = None
    cpus: float | None = None
    exit: str = "ok"
    """``ok``, ``oom`` (the peak is a lower bound) or ``failed``: it says nothing, unless it was
    cut short on this site; then its GPU peak is what it held by then."""
    started_at: datetime | None = None
    recipe: str = ""
    """Name under which runs of the same program are compared."""
    flops: float | None = None
    params: float | None = None
    activations: float | None = None
    layers: float | None = None
    team: str = ""
    """Whose run it was, which alone it tells of; empty for what all may know."""
    owner: str = ""
    """Who ran it; empty where that is not known."""
    source: str = "site"
    """``site`` for our own runs, else the name given when importing."""
    run_id: str | None = None
    beside: tuple[Beside, ...] = ()
    """Who slowed it down, as far as that was measured."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Columns that the schema does not know, kept as they are."""
