"""Parts of what commands print with --json, by key: docs/reference/json.md is made of them.

The end of a key says its unit: ``_bytes``, ``_s`` (seconds), ``_frac`` (0 to 1), ``_at`` (ISO 8601
in UTC). None: not known, not yet so, or there is none; what else it means is said.
"""

from typing import TypedDict

from headway.model.lease import Basis, Resource
from headway.model.run import Exit, StepState

At = str
"""A moment, in ISO 8601."""


class Quantities(TypedDict):
    """What an attempt took."""

    runtime_s: float | None
    host_peak_bytes: int | None
    gpu_peak_bytes: int | None
    """On the GPU where it was most."""
    cost: float | None
    """In the site's currency."""


class Predicted(Quantities):
    """What it was predicted to take."""

    runtime_low_s: float | None
    """With `runtime_high_s` an interval of 80 %."""
    runtime_high_s: float | None
    basis: str
    """What it rests on; begins with `prior` where that is a guess."""
    runtime_known: bool
    """False: time and cost are guesses."""


class Code(TypedDict):
    """The folder that a run brought along."""

    id: str
    commit: str | None
    files: int
    size_bytes: int
    diff: str
    """What it differs in from the commit."""
    is_kept: bool
    """False once its files are gone; commit and diff stay."""


class StepShown(TypedDict):
    """A step of an attempt."""

    name: str
    attempt: int
    state: StepState
    seconds: float | None
    """Null while it goes on."""
    message: str


class RankShown(TypedDict):
    """A part of a run over several nodes."""

    rank: int
    run_id: str
    node: str | None
    state: str
    exit: Exit | None


class DemandShown(TypedDict):
    """What it needs on one node."""

    host_memory_bytes: int
    host_memory_basis: Basis
    host_memory_why: str
    """What a guess of it rests on; empty where it is none."""
    cpus: float
    gpus: int
    gpu_memory_bytes: int
    """On each GPU."""


class GrantShown(TypedDict):
    """What a lease holds of a GPU."""

    uuid: str
    memory_bytes: int


class LeaseShown(TypedDict):
    """What a run holds."""

    lease_id: int
    node: str
    host_memory_bytes: int
    cpus: float
    gpus: list[GrantShown]
    ports: list[int]
    """As the program has them."""
    host_ports: list[int]
    """Those of the node that lead there."""
    expires_at: At | None
    """Null on the only node of a site, where it does not expire."""


class ProgressShown(TypedDict):
    """What its log said last."""

    iteration: int | None
    epoch: float | None
    total: int | None
    """Iterations in all; of epochs where `iteration` is null."""
    metrics: dict[str, float]
    remaining_s: float | None


class StoredShown(TypedDict):
    """What a node brought to the site's store."""

    attempt: int
    files: int
    size_bytes: int
    stored_at: At
    removed_at: At | None
    note: str
    """What was left out, and why."""


class AttemptShown(TypedDict):
    """An attempt."""

    attempt: int
    node: str | None
    resource: Resource | None
    """With `reason`: what it last waited for."""
    reason: str
    claimed_at: At | None
    started_at: At | None
    ended_at: At | None
    size: str | None
    exit: Exit | None
    predicted: Predicted
    measured: Quantities


class StartTold(TypedDict):
    """When a run is expected to start."""

    starts_now: bool
    earliest_start_at: At | None
    """With `latest_start_at` an interval of 80 %."""
    expected_start_at: At | None
    latest_start_at: At | None
    start_unknown: str
    """Why the times are null, such as a run of unknown length ahead; else empty."""
    planned_at: At | None
    """When the plan was made that tells it: the same for all who ask until the next one."""


class Waiting(StartTold):
    """A run that waits. Of other teams' runs all that says whose or why is null."""

    position: int
    """From 1."""
    run_id: str | None
    name: str | None
    owner: str | None
    team: str | None
    attempt: int
    resource: Resource | None
    """What is scarce."""
    reason: str | None
    needs_host_memory_bytes: int | None
    needs_gpus: int | None
    promised_start_at: At | None
    """Null until its team's quota lets it start, too."""
    predicted_runtime_s: float | None
    submitted_at: At | None
    array_id: str | None
    array_index: int | None


class HolderShown(TypedDict):
    """A run that has what is scarce, those that end first at the beginning, as the plan has it.

    `run_id`, `name` and `team` of other teams' are null.
    """

    run_id: str | None
    name: str | None
    team: str | None
    node: str
    gpus: int
    gpu_memory_bytes: int
    host_memory_bytes: int
    cpus: float
    expected_end_at: At | None


class AheadShown(TypedDict):
    """A run that is ahead; `run_id`, `name` and `team` of other teams' are null."""

    position: int
    run_id: str | None
    name: str | None
    team: str | None
    why: str
