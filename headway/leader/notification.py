"""Tells people by any service that Apprise knows: mail, ntfy, Matrix and a hundred others."""

from typing import ClassVar

from prefect.blocks.notifications import AppriseNotificationBlock
from pydantic import Field, SecretStr


class HeadwayNotification(AppriseNotificationBlock):
    """What `notify` of a job or a team may name as ``headway-notification/NAME``."""

    _block_type_name: ClassVar[str] = "Headway notification"
    _block_type_slug: ClassVar[str] = "headway-notification"
    _description: ClassVar[str] = "Tells people by mail, ntfy, Matrix or any service of Apprise's."

    url: SecretStr = Field(
        title="Apprise URL",
        description="Service, account and receiver, as Apprise writes them.",
        examples=["ntfys://ntfy.example.org/vision", "mailtos://user:secret@example.org?to=ada"],
    )
