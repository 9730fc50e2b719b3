"""The parts of a job that are groups of keys, and what all of them have in common."""

import ast
import inspect
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from headway.model.address import URI
from headway.model.document import Document, Path
from headway.model.job_fields import (
    Refused,
    choice,
    duration,
    number,
    pattern,
    size,
    whole,
    whole_or_range,
    yes_no,
)
from headway.model.job_problem import explain
from headway.model.job_rules import CONFIG
from headway.model.job_types import (
    MAX_MEMORY_BYTES,
    MAX_RUNTIME_S,
    MIN_MEMORY_BYTES,
    AnySize,
    Checksum,
    Count,
    Label,
    MemorySize,
)
from headway.model.lease import Sharing
from headway.model.number_range import NumberRange
from headway.model.run import When
from headway.units import MIB


def _as_form(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Number the fields, by which Prefect's form shows them, and describe each by its docstring.

    PostgreSQL gives the keys of a document back in an order of its own. Docstrings are read here,
    since pydantic would read them at each import.
    """
    (part,) = ast.parse(inspect.getsource(model)).body
    said: dict[str, str] = {}
    for field, text in pairwise(part.body if isinstance(part, ast.ClassDef) else ()):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                said[name] = " ".join(words.split())
    for position, (name, entry) in enumerate(schema.get("properties", {}).items()):
        entry["position"] = position
        if name in said:
            entry["description"] = said[name]


def _title(name: str, _: object) -> str:
    """What the form calls a field that says nothing else."""
    return name.replace("_", " ").capitalize()


class Part(BaseModel):
    """Shared settings: closed and frozen. Each field's kind does the rest."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, json_schema_extra=_as_form,
        field_title_generator=_title,
    )  # fmt: skip
    inside: ClassVar[Path] = ()
    """Where a job has this part."""
    gone: ClassVar[frozenset[str]] = frozenset()
    """Fields of earlier versions: a job that was kept has null for each that nobody had given."""

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
        for name in cls.gone:
            if completed.get(name, name) is None:
                del completed[name]
        return completed


class Dataset(Part):
    """The data the job reads; staged to the node before the start."""

    inside = ("dataset",)
    gone = frozenset({"shard"})

    uri: Annotated[str, URI] = Field(title="Address")
    """Path or fsspec address of a file or directory."""
    sha256: Checksum | None = Field(None, title="SHA-256")
    """Checked after the copy; wrong data never trains."""
    size: AnySize | None = None
    """Its size if you know it; measured while staging otherwise."""


class Resources(Part):
    """What the job needs of a node."""

    inside = ("resources",)

    gpus: Annotated[int | NumberRange, whole_or_range(0, 1024)] = Field(0, title="GPUs")
    """On each node. 0 trains on the CPU. A range such as 2-8: as many as there is room for and as
    pay."""
    nodes: Annotated[int | NumberRange, whole_or_range(1, 64)] = 1
    """Above 1 the command runs on so many nodes, started together or not at all. A range such as
    2-4: on as many as there is room for and as pay."""
    gpu_memory: MemorySize | None = Field(None, title="GPU memory")
    """On each GPU, such as 12GiB; else predicted, or all."""
    gpu_type: Label = Field("", title="GPU type")
    """Words of the product name, such as V100; empty for any."""
    sharing: Annotated[Sharing, choice(*Sharing, kind=Sharing)] = Sharing.SHARED
    """shared: others may use the rest of the GPU. whole: it is this job's alone."""
    host_memory: Annotated[
        int | Literal["auto"], size(MIN_MEMORY_BYTES, MAX_MEMORY_BYTES, word="auto")
    ] = "auto"
    """Hard limit, such as 8GiB; auto takes what runs like it needed, else what its framework takes,
    4 GiB for each GPU, or 10 × the data set where that is more."""
    cpus: Annotated[float, number(0.01, 4096)] = Field(1.0, title="CPUs")
    """Share of the node's processors; 0.5 is half of one."""
    shm: MemorySize = Field(64 * MIB, json_schema_extra={"default": "64MiB"}, title="Shared memory")
    """/dev/shm, used by data-loading processes."""
    disk: AnySize | None = None
    """Most that it may write: outputs, checkpoint, log and whatever else is in its container,
    together; 0 says nothing."""
    cpu_fallback: Annotated[bool, yes_no()] = Field(False, title="CPU fallback")
    """May run without its GPUs where they are taken, unless waiting is known to end sooner."""


class Training(Part):
    """What is trained; the estimators learn from these."""

    inside = ("training",)

    framework: Label = ""
    """Such as pytorch, keras, scikit-learn."""
    network: Label = ""
    """Such as resnet-50; runs of one network are compared."""
    batch_size: Count | None = None
    """Per GPU."""
    epochs: Count | None = None
    """Passes or boosting rounds."""
    data_threads: Annotated[int, whole(0, 4096)] | None = None
    """Processes or threads that load data."""
    samples: Count | None = None
    """Rows or images in an epoch."""
    precision: Annotated[str, choice("fp32", "fp16", "amp", "bf16")] = "fp32"
    settings: Annotated[dict[str, Any], CONFIG] = {}
    """Numbers that its program is configured with, by name; read from the files of the folder that
    is sent, where left out."""

    @model_validator(mode="after")
    def _batch_fits_the_data(self) -> Self:
        if self.batch_size and self.samples and self.batch_size > self.samples:
            raise Refused(f"give at most samples, which is {self.samples}", "batch_size")
        return self


class After(Part):
    """The run that this one follows; its id or name is enough."""

    inside = ("after",)

    run: Annotated[
        str, pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*", "give the id or the name of a run", limit=63)
    ]
    """Id or name of a run of the same team."""
    when: Annotated[When, choice(*When, kind=When)] = When.OK
    """ok: it ended well. failed: it did not. any: either."""

    @model_validator(mode="before")
    @classmethod
    def _run_alone(cls, values: Any) -> Any:
        return {"run": values} if isinstance(values, str) else values


def data_field(name: str) -> str:
    """The field of a job in which the data set of this name stands."""
    return f"datasets.{name}" if name else "dataset"


class Session(Part):
    """What makes a run a session: it is worked with, at a port of its own or in a shell."""

    inside = ("session",)

    port: Annotated[int, whole(1024, 65_535)] | None = None
    """On which its program listens, such as 8080, where it cannot be told another one. Left out: a
    free one."""
    shell: Annotated[bool, yes_no()] = False
    """It serves no port: its user works in a shell beside its program, by `headway exec`."""

    idle: Annotated[float, duration(1.0, MAX_RUNTIME_S, example="30min")] | None = Field(
        None, title="Idle time"
    )
    """Such as 30min; it is ended when nobody was connected and no GPU was used for so long. Left
    out: the site's."""

    @model_validator(mode="after")
    def _serves_or_not(self) -> Self:
        if self.shell and self.port is not None:
            raise Refused("leave it out, since shell is given: such a session serves none", "port")
        return self
