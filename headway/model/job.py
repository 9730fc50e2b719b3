"""A job: what a person asks for. One model for YAML, JSON, the flow's parameter and the run form.

Everything is validated here, strictly: a `true` is not the number 1, an
unknown key is an error, and sizes and durations are written with their unit.
What depends on the site (the largest node, allowed images) is judged later,
by policy, against the site's values.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from headway.model.address import URI
from headway.model.document import Document, Path
from headway.model.image import GIVE_IMAGE
from headway.model.job_fields import (
    Refused,
    choice,
    duration,
    each,
    number,
    pattern,
    size,
    whole,
    whole_or_range,
    yes_no,
)
from headway.model.job_problem import explain
from headway.model.job_rules import (
    COMMAND,
    CONFIG,
    ENVIRONMENT,
    IMAGE,
    NOTIFIER,
    OUTPUT,
    PROGRESS,
    PYTHON,
    REQUIREMENTS,
    SECRETS,
    VOLUME,
    WORKDIR,
)
from headway.model.job_types import (
    MAX_MEMORY_BYTES,
    MAX_RUNTIME_S,
    MIN_MEMORY_BYTES,
    AnySize,
    Checksum,
    Count,
    Label,
    MemorySize,
    Name,
    Owner,
)
from headway.model.launch import Launch
from headway.model.lease import Sharing
from headway.model.number_range import NumberRange
from headway.model.run import When
from headway.model.size import Size, sizes_of
from headway.model.volume import VOLUME_NAME
from headway.units import MIB


def _in_order(schema: dict[str, Any]) -> None:
    """Number the fields: Prefect's form shows them by this.

    PostgreSQL gives the keys of a document back in an order of its own.
    """
    for position, field in enumerate(schema.get("properties", {}).values()):
        field["position"] = position


class _Part(BaseModel):
    """Shared settings: closed and frozen. Each field's kind does the rest."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, json_schema_extra=_in_order
    )
    inside: ClassVar[Path] = ()
    """Where a job has this part."""

    def __init__(self, **values: Any) -> None:
        """Build it in Python.

        Raises:
            InvalidInput: A value is not allowed; with its field.
        """
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise explain(error, Document(values), type(self), inside=self.inside) from None

    # So pydantic calls it for a part built in Python only; a part inside another one must
    # keep to pydantic's own errors, which know the whole path.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: Any) -> Any:
        """*values* with None for a required key that is missing, so that its kind speaks.

        A group or a list with nothing below it (``resources:``) means its default.
        """
        if not isinstance(values, Mapping):
            return values
        completed = dict(values)
        for name, field in cls.model_fields.items():
            if field.is_required():
                completed.setdefault(name, None)
            elif isinstance(field.default, BaseModel | list | dict) and values.get(name) is None:
                completed.pop(name, None)
        return completed


class Dataset(_Part):
    """The data the job reads; staged to the node before the start."""

    inside = ("dataset",)

    uri: Annotated[str, URI] = Field(
        title="Address", description="Path or fsspec address of a file or directory."
    )
    sha256: Checksum | None = Field(
        None, title="SHA-256", description="Checked after the copy; wrong data never trains."
    )
    size: AnySize | None = Field(
        None, title="Size", description="Its size if you know it; measured while staging otherwise."
    )
    shard: Annotated[str, choice("node")] | None = Field(
        None,
        title="Shard",
        description="node: each node of the job has a part of its files only. Left out: all.",
    )

    @model_validator(mode="after")
    def _parts_have_no_sum(self) -> Self:
        if self.shard is not None and self.sha256 is not None:
            allowed = "leave it out, since shard is given: no node has all that it is the sum of"
            raise Refused(allowed, "sha256")
        return self


class Resources(_Part):
    """What the job needs of a node."""

    inside = ("resources",)

    gpus: Annotated[int | NumberRange, whole_or_range(0, 1024)] = Field(
        0,
        title="GPUs",
        description="On each node. 0 trains on the CPU. A range such as 2-8: as many as there is "
        "room for and as pay.",
    )
    nodes: Annotated[int | NumberRange, whole_or_range(1, 64)] = Field(
        1,
        title="Nodes",
        description="Above 1 the command runs on so many nodes, started together or not at all. A "
        "range such as 2-4: on as many as there is room for and as pay.",
    )
    gpu_memory: MemorySize | None = Field(
        None, title="GPU memory", description="On each GPU, such as 12GiB; else predicted, or all."
    )
    gpu_type: Label = Field(
        "", title="GPU type", description="Words of the product name, such as V100; empty for any."
    )
    sharing: Annotated[Sharing, choice(*Sharing, kind=Sharing)] = Field(
        Sharing.SHARED,
        title="Sharing",
        description="shared: others may use the rest of the GPU. whole: it is this job's alone.",
    )
    host_memory: Annotated[
        int | Literal["auto"], size(MIN_MEMORY_BYTES, MAX_MEMORY_BYTES, word="auto")
    ] = Field(
        "auto",
        title="Host memory",
        description="Hard limit, such as 8GiB; auto takes the prediction, 10 × the data set or, "
        "where nothing is known, 2 GiB, 4 GiB for each GPU.",
    )
    cpus: Annotated[float, number(0.01, 4096)] = Field(
        1.0, title="CPUs", description="Share of the node's processors; 0.5 is half of one."
    )
    shm: MemorySize = Field(
        64 * MIB,
        title="Shared memory",
        description="/dev/shm, used by data-loading processes.",
        json_schema_extra={"default": "64MiB"},  # as the form writes it, not in bytes
    )
    disk: AnySize | None = Field(
        None,
        title="Disk",
        description="Most that it may write: outputs, checkpoint, log and whatever else is in its "
        "container, together; 0 says nothing.",
    )
    cpu_fallback: Annotated[bool, yes_no()] = Field(
        False,
        title="CPU fallback",
        description="May run without its GPUs where they are taken, unless waiting is known to "
        "end sooner.",
    )


class Training(_Part):
    """What is trained; the estimators learn from these."""

    inside = ("training",)

    framework: Label = Field(
        "", title="Framework", description="Such as pytorch, keras, scikit-learn."
    )
    network: Label = Field(
        "", title="Network", description="Such as resnet-50; runs of one network are compared."
    )
    batch_size: Count | None = Field(None, title="Batch size", description="Per GPU.")
    epochs: Count | None = Field(None, title="Epochs", description="Passes or boosting rounds.")
    data_threads: Annotated[int, whole(0, 4096)] | None = Field(
        None, title="Data threads", description="Processes or threads that load data."
    )
    samples: Count | None = Field(None, title="Samples", description="Rows or images in an epoch.")
    precision: Annotated[str, choice("fp32", "fp16", "amp", "bf16")] = Field(
        "fp32", title="Precision"
    )
    settings: Annotated[dict[str, Any], CONFIG] = Field(
        {},
        title="Settings",
        description="Numbers that its program is configured with, by name; read from the files "
        "of the folder that is sent, where left out.",
    )

    @model_validator(mode="after")
    def _batch_fits_the_data(self) -> Self:
        if self.batch_size and self.samples and self.batch_size > self.samples:
            raise Refused(f"give at most samples, which is {self.samples}", "batch_size")
        return self


class After(_Part):
    """The run that this one follows; its id or name is enough."""

    inside = ("after",)

    run: Annotated[
        str, pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*", "give the id or the name of a run", limit=63)
    ] = Field(title="Run", description="Id or name of a run of the same team.")
    when: Annotated[When, choice(*When, kind=When)] = Field(
        When.OK, title="When", description="ok: it ended well. failed: it did not. any: either."
    )

    @model_validator(mode="before")
    @classmethod
    def _run_alone(cls, values: Any) -> Any:
        return {"run": values} if isinstance(values, str) else values


_MOST_DATASETS = 16


def data_field(name: str) -> str:
    """The field of a job in which the data set of this name stands."""
    return f"datasets.{name}" if name else "dataset"


class Session(_Part):
    """What makes a run a session: it is worked with, at a port of its own or in a shell."""

    inside = ("session",)

    port: Annotated[int, whole(1024, 65_535)] | None = Field(
        None,
        title="Port",
        description="On which its program listens, such as 8080, where it cannot be told another "
        "one. Left out: a free one.",
    )
    shell: Annotated[bool, yes_no()] = Field(
        False,
        title="Shell",
        description="It serves no port: its user works in a shell beside its program, by "
        "`headway exec`.",
    )

    idle: Annotated[float, duration(1.0, MAX_RUNTIME_S, example="30min")] | None = Field(
        None,
        title="Idle time",
        description="Such as 30min; it is ended when nobody was connected and no GPU was used for "
        "so long. Left out: the site's.",
    )

    @model_validator(mode="after")
    def _serves_or_not(self) -> Self:
        if self.shell and self.port is not None:
            raise Refused("leave it out, since shell is given: such a session serves none", "port")
        return self


class TrainingJob(_Part):
    """A training job, as handed to headway."""

    model_config = ConfigDict(title="Training job")

    name: Name = Field(title="Name", description="Letters, digits, dot, dash, underscore.")
    image: Annotated[str, IMAGE] = Field(
        "", title="Image", description="Container image that has the program and its libraries."
    )
    python: Annotated[str, PYTHON] = Field(
        "",
        title="Python",
        description="In the place of an image: a version such as 3.11, for which the site has "
        "named one; 3 for the newest.",
    )
    command: Annotated[list[str], COMMAND] = Field(
        title="Command", description='A list, one argument an item: ["python", "train.py"].'
    )
    workdir: Annotated[str, WORKDIR] = Field(
        "",
        title="Working directory",
        description="Folder beside the job file that `headway submit` sends along; the command "
        "starts in a copy of it.",
    )
    code: Checksum | None = Field(
        None,
        title="Code",
        description="What a folder that was sent is known by; `headway submit` fills it in.",
    )
    requirements: Annotated[str, REQUIREMENTS] = Field(
        "",
        title="Requirements",
        description="File of that folder, such as requirements.txt or pyproject.toml: the command "
        "starts in an environment with these packages, for that Python.",
    )
    dataset: Dataset | None = Field(None, title="Data set")
    datasets: dict[str, Dataset] = Field(
        {},
        title="Data sets",
        description="More of them, by name: each is at /data/NAME, and in HEADWAY_DATA_NAME.",
    )
    after: After | None = Field(
        None, title="After", description="Starts when that run has ended so; until then it waits."
    )
    resources: Resources = Field(Resources(), title="Resources")
    training: Training = Field(Training(), title="Training")
    launch: Annotated[Launch, choice(*Launch, kind=Launch)] = Field(
        Launch.TORCH,
        title="Launch",
        description="Over several nodes, how its parts find each other. torch: torchrun's "
        "variables. tensorflow: TF_CONFIG. horovod, mpi: rank 0's command starts all, by an ssh of "
        "headway's. none: {rank}, {world_size}, {local_rank} and {master} "
        "in the command.",
    )
    max_runtime: Annotated[float, duration(1.0, MAX_RUNTIME_S)] | None = Field(
        None, title="Time limit", description="Such as 4h; the job is stopped when it is reached."
    )
    stop_grace: Annotated[float, duration(1.0, 600.0, example="30s")] = Field(
        10.0,
        title="Grace time",
        description="Between SIGTERM and SIGKILL, to write a checkpoint.",
        json_schema_extra={"default": "10s"},
    )
    retries: Annotated[int, whole(0, 10)] = Field(
        2,
        title="Retries",
        description="After the node or the memory limit ended it; never after its own failure.",
    )
    preemptible: Annotated[bool, Field(strict=True)] = Field(
        False,
        title="Preemptible",
        description="May be stopped for a higher priority, and goes on from its checkpoint later.",
    )
    ports: Annotated[list[int], each(whole(1024, 65_535), example="[6006]", low=0, high=16)] = (
        Field(
            [], title="Ports", description="Of the program, which a free one of the node leads to."
        )
    )
    session: Session | None = Field(
        None,
        title="Session",
        description="Serves a port, $HEADWAY_SESSION_PORT, to which the gateway leads its owner, "
        "and ends when nobody uses it.",
    )
    env: Annotated[dict[str, str], ENVIRONMENT] = Field(
        {}, title="Environment", description="Plain values only; secrets go below."
    )
    config: Annotated[dict[str, Any], CONFIG] = Field(
        {},
        title="Config",
        description="Keys with values, however nested: the program finds them as JSON in the file "
        "$HEADWAY_CONFIG, and as YAML in $HEADWAY_CONFIG_YAML.",
    )
    secrets: Annotated[dict[str, str], SECRETS] = Field(
        {},
        title="Secrets",
        description="Name → name of a Prefect Secret block, such as job-hub-token; the program "
        "reads its value from the file that the variable NAME_FILE names.",
    )
    outputs: Annotated[list[str], each(OUTPUT, example='["*.pt"]', low=0, high=100)] = Field(
        ["**"],
        title="Outputs",
        description="Patterns of the new files in its copy of the code that are kept, beside "
        "what it writes to $HEADWAY_OUTPUTS.",
    )
    owner: Owner = Field(
        "", title="Owner", description="Who asked for it; filled in from your token."
    )
    team: Name = Field("default", title="Team", description="Whose share of the site it uses.")
    notify: (
        Annotated[list[str], each(NOTIFIER, example='["slack-webhook/vision"]', low=0, high=8)]
        | None
    ) = Field(
        None,
        title="Notify",
        description="Prefect notification blocks, TYPE/NAME, by which you are told of the end, "
        "and of a start after a long wait. Left out: yours, if an operator has named one.",
    )
    volumes: Annotated[list[str], each(VOLUME, example='["models"]', low=0, high=8)] = Field(
        [],
        title="Volumes",
        description="Folders that the operator offers, by name, such as a cache of models: at "
        "/volumes/NAME, and in HEADWAY_VOLUME_NAME.",
    )
    user_folder: Annotated[bool, yes_no()] = Field(
        False,
        title="User folder",
        description="Have the folders that its owner keeps on the node from run to run, at "
        "$HEADWAY_USER_DATA and $HEADWAY_USER_LOG.",
    )
    profile: Annotated[bool, yes_no()] = Field(
        False,
        title="Profile",
        description="Run under Nsight Systems where the image or the node has it: kernels, copies "
        "and what the links would carry.",
    )
    progress: Annotated[str, PROGRESS] | None = Field(
        None,
        title="Progress pattern",
        description="RE2 expression with the named groups iteration or epoch, total, epochs; "
        "others are metrics. Known log formats need none.",
    )

    @model_validator(mode="after")
    def _has_an_image(self) -> Self:
        if not (self.image or self.python):
            raise Refused(f"{GIVE_IMAGE}, or python", "image")
        if self.image and self.python:
            raise Refused("give it or image: the site has an image for each Python", "python")
        return self

    @model_validator(mode="after")
    def _session_is_one_run(self) -> Self:
        if self.session is not None and self.sizes[-1].nodes > 1:
            raise Refused("give 1, since session is given", "resources", "nodes")
        if self.session is not None and self.session.port in self.ports:
            raise Refused("leave it out of ports: it is given once", "session", "port")
        return self

    @model_validator(mode="after")
    def _data_has_names(self) -> Self:
        if len(self.datasets) > _MOST_DATASETS:
            raise Refused(f"give at most {_MOST_DATASETS}", "datasets")
        for name in self.datasets:
            if re.fullmatch(VOLUME_NAME, name) is None:
                allowed = "name it by lower-case letters, digits and dashes, such as validation"
                raise Refused(allowed, "datasets", name)
            # Both would lie at /data/NAME.
            if self.dataset is not None and name == self.dataset.uri.rstrip("/").split("/")[-1]:
                raise Refused("give another name: dataset is called so", "datasets", name)
        return self

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        for at, volume in enumerate(self.volumes):
            if volume in self.volumes[:at]:
                raise Refused("give each volume once", "volumes", at)
        repeated = next((port for port in self.ports if self.ports.count(port) > 1), None)
        if repeated is not None:
            position = len(self.ports) - 1 - self.ports[::-1].index(repeated)
            raise Refused("give each port once", "ports", position)
        for variable in self.secrets:
            for name, what in ((variable, "it"), (f"{variable}_FILE", f"{variable}_FILE")):
                if name in self.env:
                    raise Refused(f"{what} is in env too; give it once", "secrets", variable)
        if self.requirements and not (self.workdir or self.code):
            raise Refused("give workdir, too: it is a file of that folder", "requirements")
        resources = self.resources
        if resources.gpus == 0 and resources.gpu_memory is not None:
            raise Refused("give at least 1, since gpu_memory is given", "resources", "gpus")
        if resources.gpus == 0 and resources.gpu_type:
            raise Refused("give at least 1, since gpu_type is given", "resources", "gpus")
        return self

    @model_validator(mode="after")
    def _a_range_asks_for_gpus(self) -> Self:
        if self.resources.cpu_fallback and self.is_elastic:
            allowed = "leave it out, since gpus or nodes is a range: the CPU is none of its sizes"
            raise Refused(allowed, "resources", "cpu_fallback")
        return self

    @property
    def data(self) -> dict[str, Dataset]:
        """All its data sets; `dataset` is the one without a name."""
        return ({} if self.dataset is None else {"": self.dataset}) | self.datasets

    @property
    def configuration(self) -> dict[str, Any]:
        """What its program is configured with beside its command."""
        return {**self.training.settings, **self.config}

    @property
    def declared_data_bytes(self) -> int | None:
        """What its data sets take on a node; None without any, or where it does not say that."""
        sizes = [
            each.size // self.nodes if each.size and each.shard else each.size
            for each in self.data.values()
        ]
        known = [size for size in sizes if size is not None]
        return sum(known) if sizes and len(known) == len(sizes) else None

    @property
    def named_ports(self) -> tuple[int, ...]:
        """The ports of its node that it has to have: no others would do."""
        own = None if self.session is None else self.session.port
        return (*self.ports, *(() if own is None else (own,)))

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes that an attempt of it may have, the smallest first."""
        return sizes_of(self.resources.nodes, self.resources.gpus)

    @property
    def is_elastic(self) -> bool:
        """Whether it leaves its size to the site, within a range."""
        return len(self.sizes) > 1

    @property
    def nodes(self) -> int:
        """On how many nodes it runs at once; the fewest of a range."""
        return self.sizes[0].nodes

    @property
    def gpus(self) -> int:
        """GPUs on each node; the fewest of a range."""
        return self.sizes[0].gpus

    def of_size(self, size: Size) -> "TrainingJob":
        """The same job with nothing left to choose of its size."""
        chosen = self.resources.model_copy(update={"nodes": size.nodes, "gpus": size.gpus})
        return self.model_copy(update={"resources": chosen})

    def belonging_to(self, owner: str, team: str) -> "TrainingJob":
        """The same job as another's."""
        return self.model_copy(update={"owner": owner, "team": team})

    def without_gpus(self) -> "TrainingJob":
        """The same job on the CPU."""
        none = {"gpus": 0, "gpu_memory": None, "gpu_type": "", "sharing": Sharing.SHARED}
        return self.model_copy(update={"resources": self.resources.model_copy(update=none)})

    def recipe(self) -> str:
        """Name under which runs of the same program are compared."""
        return self.training.network or f"{self.image}:{self.name}"

    def document(self) -> dict[str, Any]:
        """The job as plain data that this model reads again."""
        return self.model_dump(mode="json")
