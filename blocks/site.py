"""Blocks of a site. Edit them in the UI; the workers read them within seconds."""

from typing import Any, ClassVar

from prefect.blocks.core import Block
from pydantic import ConfigDict, Field, TypeAdapter

from headway.model.container_policy import (
    BASE_IMAGES,
    ContainerPolicy,
    CpuRule,
    NetworkMode,
    RootFilesystem,
)
from headway.model.node import FREE_PORTS
from headway.model.node_settings import NodeSettings
from headway.policy.settings import (
    LEAST_SILENT_S,
    MOST_SILENT_S,
    OnSilentFailure,
    OnStranger,
    PolicySettings,
)

_LINE = PolicySettings()
"""What holds where the operator has set nothing."""


class HeadwayNode(Block):
    """How much of one node headway may promise, and what it costs. Named after the node."""

    model_config = ConfigDict(coerce_numbers_to_str=True)  # sizes as config.yaml may have them
    _block_type_name: ClassVar[str] = "Headway node"
    _block_type_slug: ClassVar[str] = "headway-node"
    _description: ClassVar[str] = "Reserve, prices and limits of one GPU node of a headway site."

    reserve_host_memory: str = Field(
        "auto",
        title="Host memory reserve",
        description="Held back for the system, such as 4GiB; auto is a tenth, 1 to 16 GiB.",
    )
    reserve_cpus: float = Field(0.0, ge=0, title="CPU reserve")
    reserve_gpu_memory: str = Field(
        "512MiB", title="GPU memory reserve", description="Held back on each GPU."
    )
    reserve_disk: str = Field(
        "auto",
        title="Disk reserve",
        description="Left free by runs that do not say how much disk they need, such as 20GiB; "
        "auto is a twentieth, 1 to 20 GiB.",
    )
    price_per_hour: float = Field(
        0.0, ge=0, title="Price of the node", description="For an hour of the whole node."
    )
    gpu_price_per_hour: float = Field(
        0.0, ge=0, title="Price of a GPU", description="For an hour of one GPU."
    )
    cache_budget: str = Field(
        "50GiB", title="Cache budget", description="Disk space for staged data sets."
    )
    keep_checkpoint_days: float | None = Field(
        30.0,
        gt=0,
        title="Keep checkpoints for",
        description="Days after the end of a run that did not end well that its checkpoint stays, "
        "from which a retry goes on; for ever when empty.",
    )
    keep_days: float | None = Field(
        None,
        gt=0,
        title="Keep runs for",
        description="Days after its end that a run's outputs, logs and folder stay; for ever "
        "when not set.",
    )
    keep_size: str | None = Field(
        None,
        title="Keep of runs",
        description="Most that the folders of finished runs take together, such as 500GiB: the "
        "oldest go first; anything when not set.",
    )

    ports: str = Field(
        str(FREE_PORTS),
        title="Ports",
        description="Of the node's loopback, from which the ports of runs are published, and "
        "sessions are given theirs.",
    )

    def settings(self) -> NodeSettings:
        """The settings as headway uses them. Raises `ValueError` for a wrong size."""
        return NodeSettings.model_validate(self.model_dump(exclude={"block_type_slug"}))


class HeadwayContainerPolicy(Block):
    """What containers may do on this site. The document is called ``site``."""

    _block_type_name: ClassVar[str] = "Headway container policy"
    _block_type_slug: ClassVar[str] = "headway-container-policy"
    _description: ClassVar[str] = "Images, mounts and limits that a headway site allows."

    images: list[str] = Field(
        [],
        title="Allowed images",
        description="Patterns such as python:3.* or registry.example.org/ml/*; empty for any.",
    )
    base_images: dict[str, str] = Field(
        BASE_IMAGES,
        title="Base images",
        description="For each Python that jobs may name in the place of an image, the image: "
        '{"3.11": "python:3.11-slim"}.',
    )
    environment: dict[str, str] = Field(
        {},
        title="Environment",
        description="Variables of every container whose job does not set them, such as "
        "HTTPS_PROXY and UV_DEFAULT_INDEX. Members see them.",
    )
    outside: dict[str, Any] = Field(
        {},
        title="Outside",
        description='How containers reach what lies outside: {"index": '
        '"https://pypi.example.org/simple", "more_indexes": [], "proxy": '
        '"http://proxy.example.org:3128", "no_proxy": ["example.org"], "certificates": '
        '"/etc/ssl/certs/site.pem", "contact": "help@example.org"}. Members see it.',
    )
    mount_roots: list[str] = Field(
        [],
        title="Mount roots",
        description="Directories below which a job's data set may lie; empty for all that its "
        "user may read, but for the system's own and keys.",
    )
    data_hosts: list[str] = Field(
        [],
        title="Data hosts",
        description="Networks, addresses and names of web servers that are not public and may "
        "hold data sets, such as 10.1.0.0/16.",
    )
    data_stores: dict[str, str] = Field(
        {},
        title="Data stores",
        description="Which Secret block has the credentials for the data at an address: "
        '{"s3://bucket/sets": "lab-s3", "gs://public": "anonymous"}; the block has JSON of '
        "fsspec's options, and a name that jobs may not use. Others are read without any.",
    )
    max_pids: int = Field(4096, ge=16, title="Processes", description="In one container.")
    network: NetworkMode = Field(
        NetworkMode.BRIDGE,
        title="Network",
        description="bridge: the outside alone; unguarded: so even where packet rules cannot be "
        "set; host: all that the node reaches, if the API has an auth string; none.",
    )
    gang_network: str = Field(
        "",
        title="Network of gangs",
        description="Known to every node's engine; the parts of a job over several nodes meet on "
        "it. host: the nodes' own, if the API has an auth string. Empty: such jobs are refused.",
    )
    root_filesystem: RootFilesystem = Field(RootFilesystem.WRITABLE, title="Root file system")
    cpus: CpuRule = Field(
        CpuRule.GUARANTEE,
        title="CPUs",
        description="guarantee: a program gets at least the CPUs of its job, and idle ones "
        "besides; ceiling: never more than those of its job.",
    )
    secret_prefixes: list[str] = Field(
        ["job-"],
        title="Secrets",
        description="Beginnings of the names of the Secret blocks that jobs may use.",
    )

    uids: str | None = Field(
        None,
        title="Uids",
        description="Where a site of root takes the uids of teams from, a thousand for each; "
        "2100000000-2146999999, or within the ceiling, when not set.",
    )
    volumes: dict[str, dict[str, Any]] = Field(
        {},
        title="Volumes",
        description='Folders of the nodes that jobs may ask for: {"models": {"path": '
        '"/srv/models", "writable": true, "teams": ["vision"], "variables": ["HF_HOME"]}}. '
        "One that is writable has a folder for each team, and a team has no other.",
    )
    teams: dict[str, dict[str, Any]] = Field(
        {},
        title="Teams",
        description='What differs for a team, by its name: {"vision": {"uids": "200000-200999", '
        '"ports": "30000-30999", "images": [], "mount_roots": [], "data_hosts": [], '
        '"data_stores": {"s3://vision": "vision-s3"}, '
        '"network": "none", "gang_network": "vision", "secret_prefixes": ["job-vision-"]}}. '
        "It may only narrow what holds for all; its data stores are added.",
    )

    def policy(self) -> ContainerPolicy:
        """The policy as headway uses it."""
        return ContainerPolicy.model_validate(self.model_dump(exclude={"block_type_slug"}))


class HeadwayLine(Block):
    """How the queue is ordered. The document is called ``site``."""

    _block_type_name: ClassVar[str] = "Headway line"
    _block_type_slug: ClassVar[str] = "headway-line"
    _description: ClassVar[str] = "Order, teams' weights and quotas of the queue of a headway site."

    teams: dict[str, dict[str, Any]] = Field(
        {},
        title="Teams",
        description='By name: {"vision": {"weight": 2, "max_gpus": 8, "max_running": 20, '
        '"max_waiting": 5000, "max_host_memory": "200GiB", "keep_days": 90, '
        '"engines": {"slurm": {"account": "vision", "qos": "normal", "logins": {"ada": "ada"}}}, '
        '"notify": ["slack-webhook/vision"], "tracker": "headway-mlflow/vision", '
        '"users": {"ada": {"weight": 2}, "*": {"max_gpus": 4}}}}. '
        "Who is not listed has weight 1 and no quota; * is each other user of the team; keep_days "
        "after its end goes what a run left on its node and in the site's store; notify lists the "
        "notification blocks that jobs of the team may name, of a user those that tell by default; "
        "tracker is the block by which the ends of the team's runs are written to its MLflow; "
        "engines say by which account and QOS the team's jobs go to a cluster's scheduler, and, on "
        "a site of root's, by which login of the cluster those of each user do (* as a login: the "
        "one of the user's own name).",
    )
    utilisation_limit: float = Field(
        1.0,
        gt=0,
        le=4,
        title="Utilisation limit",
        description="Jobs share a GPU while their utilisations add up to at most this.",
    )
    promise_factor: float = Field(
        _LINE.promise_factor,
        gt=0,
        title="Promise factor",
        description="A run is promised to start by when a first-come queue would have done its "
        "work, times this; from then on it goes first. Smaller: large runs start sooner, and the "
        "mean wait is longer.",
    )
    share_past_runs: bool = Field(
        _LINE.share_past_runs,
        title="Share past runs",
        description="What one team's runs took and needed is said of other teams' jobs, too.",
    )
    reservations: int = Field(
        _LINE.reservations,
        ge=1,
        title="Reservations",
        description="Runs at the front of the queue whose start nobody may delay.",
    )
    window: int = Field(
        _LINE.window,
        ge=1,
        title="Window",
        description="Runs that one decision looks at; bounds its cost.",
    )
    on_silent_failure: OnSilentFailure = Field(
        _LINE.on_silent_failure,
        title="On a silent failure",
        description="A run that holds a GPU and does not use it, or holds more GPU memory than it "
        "was granted: only warn, or stop it after the grace time.",
    )
    silent_after_s: float = Field(
        _LINE.silent_after_s,
        ge=LEAST_SILENT_S,
        le=MOST_SILENT_S,
        title="Silent after",
        description="Seconds that a GPU must have been seen before its use is judged.",
    )
    silent_grace_s: float = Field(
        _LINE.silent_grace_s,
        ge=0,
        title="Silent grace",
        description="Seconds from the warning until the run is stopped.",
    )

    on_stranger: OnStranger = Field(
        _LINE.on_stranger,
        title="On a stranger",
        description="A GPU that a program uses which is no run's: tolerate it, warn of it, or "
        "drain the GPU until it is gone.",
    )
    session_idle_s: float = Field(
        _LINE.session_idle_s,
        gt=0,
        title="Idle time of sessions",
        description="Seconds without a connection or a GPU in use after which a session ends that "
        "does not say.",
    )

    def settings(self) -> PolicySettings:
        """The settings as headway uses them."""
        document = self.model_dump(exclude={"block_type_slug"})
        return TypeAdapter(PolicySettings).validate_python(document)
