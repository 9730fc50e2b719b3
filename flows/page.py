"""What a run shows on its page in Prefect: artifacts that are made once and then kept up."""

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

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
