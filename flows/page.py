"""What a run shows on its page in Prefect: artifacts that are made once and then kept up."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate


class Artifact:
    """One artifact of the run's page: made with what it shows first, updated from then on."""

    def __init__(self, create: Callable[..., object], *, key: str, description: str) -> None:
        """Make it with *create*, Prefect's function for its kind, when there is something."""
        self._create = create
        self._key = key
        self._description = description
        self._id: UUID | None = None
        self._shown: object = None

    def show(self, data: Any) -> None:
        """Show *data*, unless it is shown already."""
        if data == self._shown:
            return
        if self._id is None:
            made = self._create(data, key=self._key, description=self._description)
            self._id = cast("UUID", made)  # no coroutine, since the flow is synchronous
        else:
            with get_client(sync_client=True) as client:
                client.update_artifact(self._id, ArtifactUpdate(data=data))
        self._shown = data


def show_picture(png: bytes, *, key: str, description: str) -> None:
    """Put *png* on the run's page; it travels inside the artifact, so no file has to be served.

    Below an image artifact Prefect prints the image's address, here all of its data.
    """
    text = f"![{description}](data:image/png;base64,{b64encode(png).decode()})"
    create_markdown_artifact(text, key=key, description=description)
