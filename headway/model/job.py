"""A job: what a person asks for. One model for YAML, JSON, the flow's parameter and the run form.

Everything is validated here, strictly: a `true` is not the number 1, an
unknown key is an error, and sizes and durations are written with their unit.
What depends on the site (the largest node, allowed images) is judged later,
by policy, against the site's values.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from headway.model.lease import Sharing
from headway.units import (
    DAY_S,
    GIB,
    MIB,
    TIB,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

MIN_MEMORY_BYTES = 6 * MIB
"""Below this the engine refuses to start a container."""
MAX_MEMORY_BYTES = 64 * TIB
MAX_RUNTIME_S = 365 * DAY_S


def _printable(value: str) -> str:
    """Reject text that would be shown otherwise than it is (controls, reordering marks)."""
    for character in value:
        if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
            raise ValueError(
                f"give text without control or invisible characters (it has U+{ord(character):04X})"
            )
    return value


def _size(low: int, high: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        allowed = f"give a size between {format_size(low)} and {format_size(high)}, such as 2GiB"
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(allowed)
        try:
            size = value if isinstance(value, int) else parse_size(value)
        except ValueError:
            raise ValueError(allowed) from None
        if not low <= size <= high:
            raise ValueError(allowed)
        return size

    return parse


def _duration(low_s: float, high_s: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        allowed = (
            f"give a duration between {format_duration(low_s)} and {format_duration(high_s)}, "
            "such as 4h"
        )
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(allowed)
        try:
            seconds = float(value) if isinstance(value, int | float) else parse_duration(value)
        except (ValueError, OverflowError):
            raise ValueError(allowed) from None
        if not low_s <= seconds <= high_s:  # also false for NaN
            raise ValueError(allowed)
        return seconds

    return parse


def write_size(size_bytes: int) -> str:
    """*size_bytes* as it may be written in a job again, without loss."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return f"{size_bytes}B"


def write_duration(duration_s: float) -> str:
    """*duration_s* as it may be written in a job again."""
    return f"{duration_s:g}s"


_SIZE_SCHEMA = {"type": "string", "pattern": r"^[0-9.]+ ?[KMGT]?(i?B)?$"}
_DURATION_SCHEMA = {"type": "string", "pattern": r"^([0-9.]+ ?(ms|s|min|m|h|d|w) ?)+$"}

Text = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=200), AfterValidator(_printable)
]
Name = Annotated[
    str,
    StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"),
]
MemorySize = Annotated[
    int,
    BeforeValidator(_size(MIN_MEMORY_BYTES, MAX_MEMORY_BYTES)),
    PlainSerializer(write_size, return_type=str),
    WithJsonSchema(_SIZE_SCHEMA),
]
AnySize = Annotated[
    int,
    BeforeValidator(_size(0, MAX_MEMORY_BYTES)),
    PlainSerializer(write_size, return_type=str),
    WithJsonSchema(_SIZE_SCHEMA),
]
Duration = Annotated[
    float,
    BeforeValidator(_duration(1.0, MAX_RUNTIME_S)),
    PlainSerializer(write_duration, return_type=str),
    WithJsonSchema(_DURATION_SCHEMA),
]
Count = Annotated[int, Field(strict=True, ge=1, le=10**12)]


class _Part(BaseModel):
    """Shared settings: closed, frozen, no silent conversion."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=True
    )


class Dataset(_Part):
    """The data the job reads; staged to the node before the start."""

    uri: Annotated[
        str,
        StringConstraints(strict=True, min_length=1, max_length=2000),
        AfterValidator(_printable),
    ] = Field(title="Address", description="Path or fsspec address of a file or directory.")
    sha256: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")] | None = (
        Field(None, title="SHA-256", description="Checked after the copy; wrong data never trains.")
    )
    size: AnySize | None = Field(
        None, title="Size", description="Its size if you know it; measured while staging otherwise."
    )


class Resources(_Part):
    """What the job needs of a node."""

    gpus: Annotated[int, Field(strict=True, ge=0, le=1024)] = Field(
        0, title="GPUs", description="On one node. 0 trains on the CPU."
    )
    gpu_memory: MemorySize | None = Field(
        None, title="GPU memory", description="On each GPU, such as 12GiB; predicted if left out."
    )
    gpu_type: Annotated[str, StringConstraints(strict=True, max_length=64)] = Field(
        "", title="GPU type", description="Part of the product name, such as V100; empty for any."
    )
    sharing: Annotated[Sharing, Field(strict=False)] = Field(
        Sharing.SHARED,
        title="Sharing",
        description="shared: others may use the rest of the GPU. whole: it is this job's alone.",
    )
    host_memory: MemorySize | Literal["auto"] = Field(
        "auto",
        title="Host memory",
        description="Hard limit, such as 8GiB; auto takes the prediction, or 10 × the data set.",
    )
    cpus: Annotated[float, Field(strict=True, gt=0, le=4096)] = Field(
        1.0, title="CPUs", description="Share of the node's processors; 0.5 is half of one."
    )
    shm: MemorySize = Field(
        64 * MIB, title="Shared memory", description="/dev/shm, used by data-loading processes."
    )
    disk: AnySize | None = Field(
        None, title="Disk", description="Scratch and outputs together, if you know it."
    )
    cpu_fallback: bool = Field(
        False,
        title="CPU fallback",
        description="May run without a GPU when it is predicted to end sooner so.",
    )

    @field_validator("cpus", mode="before")
    @classmethod
    def _whole_cpus_are_numbers(cls, value: object) -> object:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Training(_Part):
    """What is trained; the estimators learn from these."""

    framework: Annotated[str, StringConstraints(strict=True, max_length=64)] = Field(
        "", title="Framework", description="Such as pytorch, keras, scikit-learn."
    )
    network: Annotated[str, StringConstraints(strict=True, max_length=64)] = Field(
        "", title="Network", description="Such as resnet-50; runs of one network are compared."
    )
    batch_size: Count | None = Field(None, title="Batch size", description="Per GPU.")
    epochs: Count | None = Field(None, title="Epochs", description="Passes or boosting rounds.")
    data_threads: Annotated[int, Field(strict=True, ge=0, le=4096)] | None = Field(
        None, title="Data threads", description="Processes or threads that load data."
    )
    samples: Count | None = Field(None, title="Samples", description="Rows or images in an epoch.")
    precision: Literal["fp32", "fp16", "amp", "bf16"] = Field("fp32", title="Precision")

    @model_validator(mode="after")
    def _batch_fits_the_data(self) -> Self:
        if self.batch_size and self.samples and self.batch_size > self.samples:
            raise ValueError(
                f"batch_size: got {self.batch_size}; give at most samples, {self.samples}"
            )
        return self


_ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_RESERVED_ENV = re.compile(
    r"(NVIDIA_.*|CUDA_VISIBLE_DEVICES|LD_.*|DOCKER_.*|PREFECT_.*|HEADWAY_.*|PATH|HOME"
    r"|MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE|LOCAL_RANK)"
)
_SECRET_KEY = re.compile(r"(?i).*(secret|token|passw(or)?d|api_?key|private_?key|credential).*")
_IMAGE = re.compile(
    r"(?:(?P<registry>[a-z0-9.-]+(?::[0-9]{1,5})?)/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)


class TrainingJob(_Part):
    """A training job, as handed to headway."""

    model_config = ConfigDict(title="Training job")

    name: Name = Field(title="Name", description="Letters, digits, dot, dash, underscore.")
    owner: Name = Field("me", title="Owner", description="Who asked for it.")
    team: Name = Field("default", title="Team", description="Whose share of the site it uses.")
    image: Annotated[str, StringConstraints(strict=True, max_length=255)] = Field(
        title="Image", description="Container image that has the program and its libraries."
    )
    command: Annotated[
        list[Annotated[str, StringConstraints(strict=True, max_length=32_768)]],
        Field(strict=True, min_length=1, max_length=1000),
    ] = Field(title="Command", description='A list, one argument an item: ["python", "train.py"].')
    dataset: Dataset | None = Field(None, title="Data set")
    resources: Resources = Field(Resources(), title="Resources")
    training: Training = Field(Training(), title="Training")
    max_runtime: Duration | None = Field(
        None, title="Time limit", description="Such as 4h; the job is stopped when it is reached."
    )
    stop_grace: Annotated[
        float,
        BeforeValidator(_duration(1.0, 600.0)),
        PlainSerializer(write_duration, return_type=str),
        WithJsonSchema(_DURATION_SCHEMA),
    ] = Field(
        10.0, title="Grace time", description="Between SIGTERM and SIGKILL, to write a checkpoint."
    )
    retries: Annotated[int, Field(strict=True, ge=0, le=10)] = Field(
        2,
        title="Retries",
        description="After the node or the memory limit ended it; never after its own failure.",
    )
    ports: Annotated[
        list[Annotated[int, Field(strict=True, ge=1024, le=65_535)]], Field(max_length=16)
    ] = Field([], title="Ports", description="Published on the node's loopback, such as 6006.")
    env: dict[str, str] = Field(
        {}, title="Environment", description="Plain values only; secrets go below."
    )
    secrets: dict[str, Name] = Field(
        {}, title="Secrets", description="Variable name → name of a Prefect Secret block."
    )
    outputs: Annotated[list[Text], Field(max_length=100)] = Field(
        ["**"],
        title="Outputs",
        description="Patterns of the files below $HEADWAY_OUTPUTS that are kept.",
    )

    @field_validator("image")
    @classmethod
    def _image_is_a_reference(cls, value: str) -> str:
        if _IMAGE.fullmatch(value) is None:
            raise ValueError("give an image such as python:3.11-slim or registry/team/image:tag")
        return value

    @field_validator("command")
    @classmethod
    def _command_is_runnable(cls, value: list[str]) -> list[str]:
        if not value[0].strip() or value[0].startswith("-"):
            raise ValueError("give a program as the first item, such as python")
        if any("\0" in argument for argument in value):
            raise ValueError("give arguments without NUL characters")
        for argument in value:
            argument.encode()  # a lone surrogate raises UnicodeEncodeError, a ValueError
        return value

    @field_validator("ports")
    @classmethod
    def _ports_are_distinct(cls, value: list[int]) -> list[int]:
        if len(set(value)) != len(value):
            raise ValueError("give each port once")
        return value

    @field_validator("env")
    @classmethod
    def _env_is_harmless(cls, value: dict[str, str]) -> dict[str, str]:
        for key, text in value.items():
            check_env_key(key)
            if _SECRET_KEY.fullmatch(key) and text:
                raise ValueError(
                    f"{key}: it looks like a secret; name a Prefect Secret block in secrets instead"
                )
            if "\n" in text or "\r" in text or "\0" in text or len(text) > 32_768:
                raise ValueError(f"{key}: give one line of at most 32768 characters")
            text.encode()
        return value

    @field_validator("secrets")
    @classmethod
    def _secret_keys_are_env_keys(cls, value: dict[str, str]) -> dict[str, str]:
        for key in value:
            check_env_key(key)
        return value

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        both = self.env.keys() & self.secrets.keys()
        if both:
            raise ValueError(f"secrets.{min(both)}: it is in env too; give it once")
        resources = self.resources
        if resources.gpus == 0 and (resources.gpu_memory is not None or resources.gpu_type):
            raise ValueError("resources.gpus: got 0 with a GPU memory or type; give at least 1")
        return self

    def recipe(self) -> str:
        """Name under which runs of the same program are compared."""
        return self.training.network or f"{self.image}:{self.name}"

    def document(self) -> dict[str, Any]:
        """The job as plain data that this model reads again."""
        return self.model_dump(mode="json")


def check_env_key(key: str) -> None:
    """Raise `ValueError` unless *key* may be set in a container."""
    if _ENV_KEY.fullmatch(key) is None:
        raise ValueError(f"{key!r}: give a key of letters, digits and underscores")
    if _RESERVED_ENV.fullmatch(key):
        raise ValueError(f"{key}: this variable is headway's to set; leave it out")
