"""Blocks of a site. Edit them in the UI; the workers read them within seconds."""

from typing import ClassVar

from prefect.blocks.core import Block
from pydantic import Field, SecretStr

from headway.model.policy import ContainerPolicy, NetworkMode, RootFilesystem
from headway.model.site import NodeSettings


class HeadwayNode(Block):
    """How much of one node headway may promise, and what it costs. Named after the node."""

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
    price_per_hour: float = Field(
        0.0, ge=0, title="Price of the node", description="For an hour of the whole node."
    )
    gpu_price_per_hour: float = Field(
        0.0, ge=0, title="Price of a GPU", description="For an hour of one GPU."
    )
    utilisation_limit: float = Field(
        1.0,
        gt=0,
        le=4,
        title="Utilisation limit",
        description="Jobs share a GPU while their utilisations add up to at most this.",
    )
    cache_budget: str = Field(
        "50GiB", title="Cache budget", description="Disk space for staged data sets."
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
        [], title="Allowed images", description="Patterns such as python:*; empty for any."
    )
    mount_roots: list[str] = Field(
        [], title="Mount roots", description="Directories below which data may be mounted."
    )
    max_pids: int = Field(4096, ge=16, title="Processes", description="In one container.")
    network: NetworkMode = Field(NetworkMode.BRIDGE, title="Network")
    root_filesystem: RootFilesystem = Field(RootFilesystem.WRITABLE, title="Root file system")

    def policy(self) -> ContainerPolicy:
        """The policy as headway uses it."""
        return ContainerPolicy.model_validate(self.model_dump(exclude={"block_type_slug"}))


class HeadwayLedger(Block):
    """Where the site's ledger is. The document is called ``site``.

    Nodes read it when their worker starts and `HEADWAY_LEDGER_URL` is not set.
    """

    _block_type_name: ClassVar[str] = "Headway ledger"
    _block_type_slug: ClassVar[str] = "headway-ledger"
    _description: ClassVar[str] = "Database address of a headway site's ledger."

    url: SecretStr = Field(
        title="Address",
        description="postgresql://user:password@host/headway, or sqlite:////path/ledger.db",
    )
