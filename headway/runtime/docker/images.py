"""Images at an engine and at their registries."""

import re
from contextlib import closing
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException, NotFound

from headway.errors import shown
from headway.model.image import ImageReference
from headway.runtime.docker.engine import Engine, asking
from headway.runtime.errors import ImageMissing

_PULL_TIMEOUT_S = 1800
_REGISTRY_S = 5
"""Somebody waits for what the registry says."""
_NOT_THERE = re.compile(r"(manifest|name) unknown|not known to registry|: not found")
"""How registries say it through the engine; another 404 is of an engine that cannot ask."""


def have_image(engine: Engine, image: ImageReference) -> dict[str, Any]:
    """What the engine knows of the image that has this name on this node now.

    It is pulled if it is not here.

    Raises:
        ImageMissing: It is neither here nor to be had.
    """
    name = str(image)
    with asking(f"look for image {name}"):
        try:
            try:
                return _inspect(engine.api, name)
            except NotFound:
                _pull(engine, image)
                return _inspect(engine.api, name)
        except APIError as error:
            if error.is_server_error():
                raise
            # It is not there once pulled, or the engine cannot read the name.
            raise ImageMissing(name, str(error.explanation)) from error


def is_here(engine: Engine, image: str) -> bool:
    """Whether this node has *image*."""
    with asking(f"look for image {image}"):
        try:
            _inspect(engine.api, str(ImageReference.parse(image)))
        except NotFound:
            return False
        return True


def why_no_image(engine: Engine, image: str) -> str | None:
    """Why *image* is neither here nor at its registry; empty where it is, None: nobody can say.

    Only a registry that answers that it has none says so: one that cannot be
    reached or refuses may give it to the worker, which has credentials of its own.
    """
    try:
        with closing(engine.connect(_REGISTRY_S)) as api:
            name = str(ImageReference.parse(image))
            try:
                _inspect(api, name)
            except NotFound:
                api.inspect_distribution(name)  # type: ignore[no-untyped-call]
            return ""
    except NotFound as error:
        said = str(error.explanation)
        return shown(said, 200)[1:-1] if _NOT_THERE.search(said) else None
    except (requests.exceptions.RequestException, DockerException):
        return None


def _inspect(api: docker.APIClient, name: str) -> dict[str, Any]:
    # By its full name: a short one may also be the beginning of an id.
    found: dict[str, Any] = api.inspect_image(name)  # type: ignore[no-untyped-call]  # the stubs' gap
    return found


def _pull(engine: Engine, image: ImageReference) -> None:
    name, repository = str(image), f"{image.registry}/{image.repository}"
    with closing(engine.connect(_PULL_TIMEOUT_S)) as api:
        try:
            for event in api.pull(
                repository, tag=image.digest or image.tag, stream=True, decode=True
            ):
                if "error" in event:
                    raise ImageMissing(name, shown(event["error"], 300))
        except APIError as error:
            raise ImageMissing(name, shown(str(error.explanation), 300)) from error
