"""Sends what people are to be told, through the notification blocks that operators made."""

import logging

import anyio
from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block

import headway.leader.notification  # noqa: F401 - makes it and Prefect's own known to Prefect
from headway.model.notice import Notice
from headway.site import Site
from headway.views.notice_text import Text, array_text, run_text

log = logging.getLogger(__name__)

_WITHIN_S = 30.0
"""A mail server that does not answer must not hold up what else is to be told."""


async def tell_people(site: Site) -> None:
    """Send what nobody has taken yet. What cannot be sent is noted, and not tried again."""
    while notices := await anyio.to_thread.run_sync(site.ledger.notices.take):
        for notice in notices:
            text = await anyio.to_thread.run_sync(_text, site, notice)
            try:
                await _send(notice.block, text)
            except Exception as error:  # noqa: BLE001 - whatever a block raises, the others are sent
                why = f"{type(error).__name__}: {error}".splitlines()[0]
                subject = notice.run_id or notice.array_id
                log.warning("%s was not told of %s: %s", notice.block, subject, why)
                await anyio.to_thread.run_sync(site.ledger.notices.not_sent, notice, why)


async def _send(name: str, text: Text) -> None:
    """Let the block called *name* send *text*.

    Raises:
        TypeError: It is no notification block.
        TimeoutError: It took too long.
        Exception: Whatever the block raises.
    """
    with anyio.fail_after(_WITHIN_S):
        block: object = await Block.aload(name)
        if not isinstance(block, NotificationBlock):
            raise TypeError(f"{name} is no block that sends notifications")
        with block.raise_on_failure():
            await block.notify(text.body, text.subject)


def _text(site: Site, notice: Notice) -> Text:
    if notice.array_id is not None:
        return array_text(site.ledger.arrays.get(notice.array_id).name)
    return run_text(notice.kind, site.ledger.runs.get(notice.run_id or ""))
