"""Nodes as words, from what the gateway gives."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from headway.units import format_size


def state_text(view: Mapping[str, Any]) -> str:
    """The state of a `node_view` for people, with its reason."""
    return (
        f"{view['state']} ({view['state_reason']})" if view["state_reason"] else str(view["state"])
    )


def cache_text(cache: Mapping[str, Any]) -> str:
    """The data cache of a `node_view` for people: what is in it, and how often that was enough."""
    asked = cache["hits"] + cache["copies"]
    spared = f", {cache['hits']} of {asked} were there" if asked else ""
    return f"{format_size(cache['size_bytes'])}{spared}"


def gpus_text(gpus: Iterable[Mapping[str, Any]]) -> str:
    """The GPUs of a node's view for people: what is promised of them, and which are lost."""
    alike = Counter(_gpu_text(gpu) for gpu in gpus)
    return ", ".join(f"{count} × {text}" if count > 1 else text for text, count in alike.items())


def _gpu_text(gpu: Mapping[str, Any]) -> str:
    if gpu["lost"]:
        return f"gpu{gpu['index']} lost: {gpu['lost']}"
    promised = f"{format_size(gpu['promised_bytes'])} of {format_size(gpu['memory_bytes'])}"
    return f"{gpu['name']} {promised}"
