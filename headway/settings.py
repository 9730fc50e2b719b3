"""What may differ between nodes, read once: from the environment, else from the home's config.yaml.

That file's section `machine` has the names of the variables without HEADWAY_, in lower case. Its
other sections are what operators set in blocks: `headway.admin.config_file`.
"""

import os
import platform
import stat
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from headway.errors import InvalidInput, LedgerMissing
from headway.home import CONFIG, ROOT_HOME, read_operators
from headway.model.container_policy import ApiAccess
from headway.model.document import HIDDEN, Document
from headway.model.document_errors import as_one, errors_in
from headway.model.job_fields import Refused
from headway.units import GIB, MIB

_PORTS = {"http": 80, "https": 443, "postgresql": 5432, "redis": 6379, "rediss": 6379}


def _default_home() -> Path:
    own = Path.home() / ".headway"
    if os.geteuid() != 0:
        return own
    return own if own.is_dir() and own.stat().st_uid == 0 else ROOT_HOME


def config_here() -> Path:
    """The configuration file of the home that the environment names, which need not be there."""
    given = os.environ.get("HEADWAY_HOME")
    return (_default_home() if given is None else Path(given)).expanduser().absolute() / CONFIG


def read_config(path: Path) -> Document | None:
    """What the configuration file *path* says; None where there is none.

    Raises:
        InvalidInput: Others than the operator may have written it, or read a secret in it; it
            is a link, or no YAML.
        PermissionError: It is another user's.
    """
    if (found := read_operators(path)) is None:
        return None
    # ruamel.yaml takes long to import, and few homes have the file.
    from headway.model.yaml_document import read_document  # noqa: PLC0415

    document = read_document(found[0], str(path))
    secrets = sorted(SECRETS & document.group("machine").keys())
    if secrets and found[1] & (stat.S_IRGRP | stat.S_IROTH):
        allowed = f"others may read it; type `chmod 600 {path}`"
        raise InvalidInput(f"machine.{secrets[0]}", HIDDEN, allowed, where=str(path))
    return document


def _machine(path: Path) -> dict[str, Any]:
    """What the configuration file *path* sets of this machine. Raises `InvalidInput`."""
    try:
        document = read_config(path) or Document({})
    except PermissionError:  # of a home that others pass through to the site's public data
        return {}
    if errors := errors_in(document, ("machine",), Written):
        raise as_one(errors)
    return document.group("machine")


def read_settings() -> "Settings":
    """The settings of this process.

    Raises:
        InvalidInput: A variable, or the configuration file, has a value that is not allowed.
    """
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = f"HEADWAY_{str(first['loc'][0]).upper()}"
        given, allowed = first["input"], first["msg"][:1].lower() + first["msg"][1:]
        raise InvalidInput(name, given, allowed, where="environment") from None


def service_of(url: str) -> tuple[str, int] | None:
    """Host and port of *url*; None where it names no service of a network."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme.partition("+")[0])
    except ValueError:
        return None  # whoever connects to it says what is wrong with it
    return (parts.hostname, port) if parts.hostname and port else None


class _InHome:
    """A file or folder of the home, by its name there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, settings: "Settings", _: object) -> Path:
        """Where it is."""
        return settings.home / self._name


class Settings(BaseSettings):
    """Settings of this installation on this node: of `HEADWAY_*` variables, else of the file."""

    model_config = SettingsConfigDict(env_prefix="HEADWAY_", frozen=True, extra="ignore")

    home: Path = Field(default_factory=_default_home)
    """Everything headway keeps on this node lies below. When not set: ``~/.headway``; for
    root ``/var/lib/headway``, unless version 0.1 has left a site in ``/root/.headway``."""
    port: int = Field(4200, ge=1024, le=65_535)
    """Port of the site's Prefect server."""
    host: str = "127.0.0.1"
    """Address the Prefect server binds to; loopback unless told otherwise."""
    trusted_networks: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = ()
    """Networks, by commas, that only the site's own machines are on: over others they speak
    to each other by TLS alone."""
    gateway_port: int = Field(
        default_factory=lambda known: known.get("port", 4200) + 80,
        ge=1024, le=65_535, validate_default=True,
    )  # fmt: skip
    """Port of the site's gateway; when not set, 80 above `port`."""
    gateway_host: str = Field("127.0.0.1", pattern=r"^[A-Za-z0-9.-]+$")
    """Address the gateway binds to; beyond loopback it speaks TLS alone."""
    sessions_port: int = Field(
        default_factory=lambda known: known.get("gateway_port", 4280) + 1,
        ge=1024, le=65_535, validate_default=True,
    )  # fmt: skip
    """Port of the gateway for the pages of sessions alone; when not set, 1 above `gateway_port`."""
    gateway_names: Annotated[tuple[str, ...], NoDecode] = ()
    """Names, by commas, by which users ask the gateway, beside the address that it binds to."""
    server_url: str | None = None
    """Prefect API of a server on another machine, such as ``http://head:4200/api``."""
    node: str = Field(default_factory=lambda: platform.node().split(".")[0].lower() or "node")
    """Name of this node in the ledger."""
    address: str | None = None
    """Address by which the other nodes reach this one, for jobs over several nodes; found by
    itself when not set."""
    files_port: int = Field(0, ge=0, le=65_535)
    """Port on which this node serves the files of its runs to the gateway; any free one when 0."""
    store_url: SecretStr | None = None
    """Address of fsspec's to which logs and outputs of ended runs are brought, such as
    ``s3://bucket/runs`` or ``file:///srv/runs``; the same on all nodes and at the gateway."""
    pool: str = "gpu"
    """Work pool this node belongs to."""
    ledger_url: SecretStr | None = None
    """SQLAlchemy address of the ledger; when not set, in the PostgreSQL of `headway up`."""
    server_database_url: SecretStr | None = None
    """SQLAlchemy address of the Prefect server's own database; when not set, where the ledger
    is in a PostgreSQL that `headway up` started, beside it."""
    redis_url: SecretStr | None = None
    """Redis by which several processes of the Prefect server share events, their order, leases
    and background work, such as ``redis://:SECRET@127.0.0.1:6379/0``; one process needs none."""
    runtime: Literal["auto", "docker", "process"] = "auto"
    """`auto` takes the engine where one answers, else, where there never was one, the
    process runtime."""
    docker_host: str | None = None
    """Address of the engine; the SDK's default when not set."""
    nsys: Path | None = None
    """Folder of an installation of Nsight Systems on this node, such as
    ``/opt/nvidia/nsight-systems/2024.6.1``: profiled containers see it read-only."""
    nvml_library: Path | None = None
    """Another libnvidia-ml to load before NVML starts, as the tests do."""
    lease_ttl_s: float = Field(900.0, gt=0)
    """A lease that is not renewed for so long counts as expired. It outlives an outage of the
    ledger's database of ten minutes: `headway.policy.guard` has the other times."""
    container_user: str | None = Field(None, pattern=r"^[0-9]+:[0-9]+$")
    """``uid:gid`` of all programs. When not set: the owner of headway's process, or a user of
    each team's own where that is root."""
    ceiling: Path | None = None
    """File with the bounds that blocks may only narrow on this node, which has to be root's.
    When not set: ``/etc/headway/ceiling.yaml``, if it is there."""
    data_limit_bytes: int = Field(100 * GIB, gt=0)
    """What the data sets that members of one team have put may take on the gateway's disk."""
    log_limit_bytes: int = Field(256 * MIB, gt=0)
    """Of each attempt's log, at most this much is kept."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic names the arguments
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is given here, else in the environment, else in the file. Raises `InvalidInput`."""
        if settings_cls is Written:
            return (init_settings,)
        home = init_settings().get("home")
        path = config_here() if home is None else Path(home).expanduser().absolute() / CONFIG
        said = InitSettingsSource(settings_cls, _machine(path))
        return init_settings, env_settings, said

    @field_validator("home")
    @classmethod
    def _for_all_processes(cls, given: Path) -> Path:
        """Whatever folder each of them is in; a unit's file expands no tilde."""
        return given.expanduser().absolute()

    @field_validator("trusted_networks", "gateway_names", mode="before")
    @classmethod
    def _by_commas(cls, given: object) -> object:
        return [part for part in given.split(",") if part] if isinstance(given, str) else given

    @property
    def database_url(self) -> str:
        """Address of the ledger, with its password.

        Raises:
            LedgerMissing: No site has been started in this home, and none was joined.
        """
        if (known := self.known_ledger) is None:
            raise LedgerMissing(str(self.home))
        return known

    @property
    def known_ledger(self) -> str | None:
        """The same; None where there is none yet."""
        if self.ledger_url is not None:
            return self.ledger_url.get_secret_value()
        notes = (self.ledger_pointer, self.database_note)
        return next((note.read_text().strip() for note in notes if note.exists()), None)

    @property
    def server_database(self) -> str | None:
        """Address of the Prefect server's own database; None where no site has been started."""
        if self.server_database_url is not None:
            return self.server_database_url.get_secret_value()
        if not self.owns_database:
            return None
        ledger = urlsplit(self.database_note.read_text().strip())
        return urlunsplit(ledger._replace(path="/prefect"))

    @property
    def redis(self) -> str | None:
        """Address of the Redis that processes of the Prefect server share, with its password."""
        return None if self.redis_url is None else self.redis_url.get_secret_value()

    @property
    def names_ledger(self) -> bool:
        """Whether the operator, or the site that this node joined, says where the ledger is."""
        return self.ledger_url is not None or self.ledger_pointer.exists()

    @property
    def owns_database(self) -> bool:
        """Whether the ledger is in the PostgreSQL that `headway up` starts."""
        return self.database_note.exists() and not self.names_ledger

    database_note: ClassVar[_InHome] = _InHome("database.url")
    """Where `headway up` notes the ledger's address in the PostgreSQL that it started."""
    ledger_pointer: ClassVar[_InHome] = _InHome("ledger.url")
    """Where `headway node join` notes the address of the site's ledger."""

    @property
    def api_url(self) -> str:
        """The Prefect API: of the server this node joined, else of the one `headway up` starts."""
        if self.server_url is not None:
            return self.server_url
        return self._joined if self.server_pointer.exists() else self._own_url

    @property
    def _own_url(self) -> str:
        return f"http://{self.host}:{self.port}/api"

    @property
    def _joined(self) -> str:
        return self.server_pointer.read_text().strip()

    @property
    def has_joined(self) -> bool:
        """Whether this node works for a Prefect server that is not its own."""
        return self.server_url is not None or self.server_pointer.exists()

    @property
    def is_guest(self) -> bool:
        """Whether `headway node join` has made this machine a node of a site elsewhere.

        systemd's worker joins the site of its own machine.
        """
        return self.server_pointer.exists() and self._joined != self._own_url

    @property
    def services(self) -> tuple[tuple[str, int], ...]:
        """Host and port of Prefect's API, the databases and Redis, where they are not files."""
        urls = [self.api_url, self.known_ledger, self.server_database, self.redis]
        return tuple(found for url in urls if (found := service_of(url or "")) is not None)

    @property
    def api_access(self) -> ApiAccess:
        """Who may give orders through the site's API, as far as this process was told."""
        names = ("PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING")
        told = self.auth_file.exists() or any(map(os.environ.get, names))
        return ApiAccess.PASSWORD if told else ApiAccess.OPEN

    auth_file: ClassVar[_InHome] = _InHome("auth")
    """The string that the site's Prefect server asks for."""
    token_file: ClassVar[_InHome] = _InHome("token")
    """The token with which this machine's operator comes in at the gateway."""
    gateway_note: ClassVar[_InHome] = _InHome("gateway.json")
    """Where the gateway of this machine, or of the site that it joined, is noted."""
    server_pointer: ClassVar[_InHome] = _InHome("server.url")
    """Where `headway node join` notes the address of another machine's server."""
    slurm_dir: ClassVar[_InHome] = _InHome("slurm")
    """What is handed to Slurm's machines, which have to share it and `runs_dir`."""
    engines_dir: ClassVar[_InHome] = _InHome("engines")
    """The same for other engines, a folder each."""
    runs_dir: ClassVar[_InHome] = _InHome("runs")
    """One directory a run: log, outputs, mounts."""
    users_dir: ClassVar[_InHome] = _InHome("users")
    """What users keep from run to run: one directory a team, in it one a user."""
    secrets_dir: ClassVar[_InHome] = _InHome("secrets")
    """Secrets of the containers that there are, one directory each."""
    work_dir: ClassVar[_InHome] = _InHome("work")
    """Copies of code that the containers that there are started in, one directory each."""
    environments_dir: ClassVar[_InHome] = _InHome("environments")
    """Environments that runs start in, by team."""
    cache_dir: ClassVar[_InHome] = _InHome("cache")
    """Staged data sets."""
    uploads_dir: ClassVar[_InHome] = _InHome("uploads")
    """Where the gateway runs: what members have put, by team; headway's alone."""
    code_dir: ClassVar[_InHome] = _InHome("code")
    """Parts of the code of runs, by team; headway's alone: each run has a copy of its own."""
    models_dir: ClassVar[_InHome] = _InHome("models")
    """Estimator versions."""
    state_dir: ClassVar[_InHome] = _InHome("state")
    """Process ids, sockets and logs of the site's own processes."""


class Written(Settings, extra="forbid"):
    """The same, of what is given alone: what the section `machine` of a file says."""

    @model_validator(mode="before")
    @classmethod
    def _without_home(cls, values: dict[str, Any]) -> dict[str, Any]:
        if "home" in values:
            raise Refused("leave it out: HEADWAY_HOME says where this file is", "home")
        return values


SECRETS = frozenset(
    name for name, field in Settings.model_fields.items() if field.annotation == SecretStr | None
)
"""Settings that are secrets."""
