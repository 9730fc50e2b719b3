"""A job: what a person asks for. One model for YAML, JSON, the flow's parameter and the run form.

Everything is validated here, strictly: a `true` is not the number 1, an
unknown key is an error, and sizes and durations are written with their unit.
What depends on the site (the largest node, allowed images) is judged later,
by policy, against the site's values.
"""

import re
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from headway.model.image import GIVE_IMAGE
from headway.model.job_fields import Refused, choice, duration, each, whole, yes_no
from headway.model.job_parts import After, Dataset, Part, Resources, Session, Training
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
from headway.model.job_types import MAX_RUNTIME_S, Checksum, Name, Owner
from headway.model.launch import Launch
from headway.model.lease import Sharing
from headway.model.size import Size, sizes_of
from headway.model.volume import VOLUME_NAME

_MOST_DATASETS = 16


class TrainingJob(Part):
    """A training job, as handed to headway."""

    model_config = ConfigDict(title="Training job")

    name: Name
    """Letters, digits, dot, dash, underscore."""
    image: Annotated[str, IMAGE] = ""
    """Container image that has the program and its libraries."""
    python: Annotated[str, PYTHON] = ""
    """In the place of an image: a version such as 3.11, for which the site has named one; 3 for the
    newest."""
    command: Annotated[list[str], COMMAND]
    """A list, one argument an item: ["python", "train.py"]."""
    workdir: Annotated[str, WORKDIR] = Field("", title="Working directory")
    """Folder beside the job file that `headway submit` sends along; the command starts in a copy of
    it."""
    code: Checksum | None = None
    """What a folder that was sent is known by; `headway submit` fills it in."""
    requirements: Annotated[str, REQUIREMENTS] = ""
    """File of that folder, such as requirements.txt or pyproject.toml: the command starts in an
    environment with these packages, for that Python."""
    dataset: Dataset | None = Field(None, title="Data set")
    datasets: dict[str, Dataset] = Field({}, title="Data sets")
    """More of them, by name: each is at /data/NAME, and in HEADWAY_DATA_NAME."""
    after: After | None = None
    """Starts when that run has ended so; until then it waits."""
    resources: Resources = Resources()
    training: Training = Training()
    launch: Annotated[Launch, choice(*Launch, kind=Launch)] = Launch.TORCH
    """Over several nodes, how its parts find each other. torch: torchrun's variables. tensorflow:
    TF_CONFIG. horovod, mpi: rank 0's command starts all, by an ssh of headway's. none: {rank},
    {world_size}, {local_rank} and {master} in the command."""
    max_runtime: Annotated[float, duration(1.0, MAX_RUNTIME_S)] | None = Field(
        None, title="Time limit"
    )
    """Such as 4h; the job is stopped when it is reached."""
    stop_grace: Annotated[float, duration(1.0, 600.0, example="30s")] = Field(
        10.0, json_schema_extra={"default": "10s"}, title="Grace time"
    )
    """Between SIGTERM and SIGKILL, to write a checkpoint."""
    retries: Annotated[int, whole(0, 10)] = 2
    """After the node or the memory limit ended it; never after its own failure."""
    preemptible: Annotated[bool, Field(strict=True)] = False
    """May be stopped for a higher priority, and goes on from its checkpoint later."""
    ports: Annotated[list[int], each(whole(1024, 65_535), example="[6006]", low=0, high=16)] = []
    """Of the program, which a free one of the node leads to."""
    session: Session | None = None
    """Serves a port, $HEADWAY_SESSION_PORT, to which the gateway leads its owner, and ends when
    nobody uses it."""
    env: Annotated[dict[str, str], ENVIRONMENT] = Field({}, title="Environment")
    """Plain values only; secrets go below."""
    config: Annotated[dict[str, Any], CONFIG] = {}
    """Keys with values, however nested: the program finds them as JSON in the file $HEADWAY_CONFIG,
    and as YAML in $HEADWAY_CONFIG_YAML."""
    secrets: Annotated[dict[str, str], SECRETS] = {}
    """Name → name of a Prefect Secret block, such as job-hub-token; the program reads its value
    from the file that the variable NAME_FILE names."""
    outputs: Annotated[list[str], each(OUTPUT, example='["*.pt"]', low=0, high=100)] = ["**"]
    """Patterns of the new files in its copy of the code that are kept, beside what it writes to
    $HEADWAY_OUTPUTS."""
    owner: Owner = ""
    """Who asked for it; filled in from your token."""
    team: Name = "default"
    """Whose share of the site it uses."""
    notify: (
        Annotated[list[str], each(NOTIFIER, example='["slack-webhook/vision"]', low=0, high=8)]
        | None
    ) = None
    """Prefect notification blocks, TYPE/NAME, by which you are told of the end, and of a start
    after a long wait. Left out: yours, if an operator has named one."""
    volumes: Annotated[list[str], each(VOLUME, example='["models"]', low=0, high=8)] = []
    """Folders that the operator offers, by name, such as a cache of models: at /volumes/NAME, and
    in HEADWAY_VOLUME_NAME."""
    user_folder: Annotated[bool, yes_no()] = False
    """Have the folders that its owner keeps on the node from run to run, at $HEADWAY_USER_DATA and
    $HEADWAY_USER_LOG."""
    profile: Annotated[bool, yes_no()] = False
    """Run under Nsight Systems where the image or the node has it: kernels, copies and what the
    links would carry."""
    progress: Annotated[str, PROGRESS] | None = Field(None, title="Progress pattern")
    """RE2 expression with the named groups iteration or epoch, total, epochs; others are metrics.
    Known log formats need none."""

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
        sizes = [each.size for each in self.data.values()]
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
