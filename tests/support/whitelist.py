"""What the engine may give a container of headway: asserted on each that a test creates."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import DockerException, NotFound

_SITE, _LOG = "headway.site", "headway.log"
_FREE = frozenset(
    {
        "Mounts", "Memory", "MemorySwap", "NanoCpus", "CpuShares", "CpusetCpus", "PidsLimit",
        "ShmSize", "CapDrop", "SecurityOpt", "Init", "ReadonlyRootfs", "StorageOpt", "Tmpfs",
        "NetworkMode", "PortBindings", "DeviceRequests", "CgroupParent", "LogConfig", "MaskedPaths",
        "ReadonlyPaths", "ConsoleSize",
    }
)  # fmt: skip
"""What headway sets, looked at below, and what the engine fills in by itself."""
_DEFAULT: Mapping[str, tuple[object, ...]] = {
    "IpcMode": ("private", "shareable"),
    "CgroupnsMode": ("private", "host"),  # the engine's own choice, by the kernel's version
    "Runtime": ("runc",),
    "OomScoreAdj": (1000,),  # the kernel ends it before others
    "RestartPolicy": (
        {"Name": "", "MaximumRetryCount": 0}, {"Name": "no", "MaximumRetryCount": 0}
    ),
}  # fmt: skip
"""Values that are allowed where they are not empty: most are the engine's defaults."""
_HIDDEN = ("/proc/kcore", "/proc/keys", "/sys/firmware")
_NEVER = ("/proc", "/sys", "/dev", "/run/docker.sock", "/var/run/docker.sock", "/etc")


def beyond(found: Mapping[str, Any]) -> list[str]:
    """What of a container, as the engine describes it, is not on the list; empty when all is."""
    host, config = found["HostConfig"], found["Config"]
    wrong = [
        f"{key} is {value!r}"
        for key, value in host.items()
        if key not in _FREE and value and value not in _DEFAULT.get(key, ())
        and value != [0, 0]
    ]  # fmt: skip
    must = {
        "drops all capabilities": host["CapDrop"] == ["ALL"],
        "gains no privileges": host["SecurityOpt"] == ["no-new-privileges"],
        "has a limit on memory, swap included": 0 < host["Memory"] == host["MemorySwap"],
        "has a limit on processes": (host["PidsLimit"] or 0) > 0,
        "has a weight of CPU time": host["CpuShares"] > 0,
        "has an init": host["Init"] is True,
        "has a user and a group": config["User"].replace(":", "", 1).isdecimal()
        and ":" in config["User"],
        "has masked paths": set(_HIDDEN) <= set(host["MaskedPaths"] or ()),
        "has no other's network": not host["NetworkMode"].startswith("container:"),
        "asks for devices by the driver alone": all(
            each["DeviceIDs"] and each["Capabilities"] == [["gpu"]] and not each["Options"]
            for each in host["DeviceRequests"] or ()
        ),
        "publishes on the loopback alone": all(
            each["HostIp"] == "127.0.0.1"
            for bound in (host["PortBindings"] or {}).values()
            for each in bound or ()
        ),
        "is told no GPU by a variable": not any(
            each.startswith("NVIDIA_") and each != "NVIDIA_VISIBLE_DEVICES=void"
            for each in config["Env"] or ()
        ),
    }
    wrong += [f"not so that it {what}" for what, good in must.items() if not good]
    return wrong + [f"mount {each}" for each in host.get("Mounts") or () if not _may_mount(each)]


def _may_mount(mount: Mapping[str, Any]) -> bool:
    if mount["Type"] == "tmpfs":
        return not mount.get("Source")
    source = Path(mount.get("Source") or "/")
    closed = any(source.is_relative_to(place) for place in _NEVER) or source == Path("/")
    # Of binds nothing but whether they may be written: no propagation, no driver.
    options = set(mount) - {"Type", "Source", "Target", "ReadOnly"}
    return mount["Type"] == "bind" and not closed and not options


class Watch:
    """Looks at each container that is created for headway, until it is stopped.

    Args:
        host: Address of the engine; None for the default one.
        base: Only those whose log lies below it: others' tests use the engine, too.
    """

    def __init__(self, host: str | None, base: Path | None = None) -> None:
        self.seen = 0
        self.wrong: list[str] = []
        self._base = base
        self._client = docker.DockerClient(base_url=host) if host else docker.from_env()
        # In its thread the environment would be read while a test changes it.
        self._client.api.trust_env = False
        filters = {"type": "container", "event": "create", "label": _SITE}
        self._events = self._client.api.events(filters=filters, decode=True)
        self._thread = threading.Thread(target=self._look, daemon=True, name="container watch")
        self._thread.start()

    def _look(self) -> None:
        # The engine may be killed under a test.
        with suppress(DockerException, requests.RequestException, OSError, ValueError):
            for event in self._events:
                with suppress(NotFound):  # removed as soon as it was made
                    found = self._client.api.inspect_container(event["id"])
                    self._judge(found)

    def _judge(self, found: Mapping[str, Any]) -> None:
        log = Path(found["Config"]["Labels"].get(_LOG, "/"))
        if self._base is not None and not log.is_relative_to(self._base):
            return
        self.seen += 1
        self.wrong += [f"container {found['Name']}: {each}" for each in beyond(found)]

    def end(self) -> list[str]:
        """Look no more; what was found that is not on the list."""
        with suppress(DockerException, requests.RequestException, OSError):
            self._events.close()
        self._thread.join(10.0)
        self._client.close()
        return self.wrong


@contextmanager
def watched(host: str | None, base: Path | None = None) -> Iterator[Watch]:
    """Assert at the end that all that was created meanwhile keeps to the list."""
    watch = Watch(host, base)
    try:
        yield watch
    finally:
        wrong = watch.end()
    assert not wrong, wrong
