"""Registers headway's blocks, and makes the documents that are not there yet.

Run by `headway up`; a document that an operator has edited is left as it is.
"""

import sys
from contextlib import closing
from typing import Any

from prefect.blocks.core import Block

from blocks.site import HeadwayContainerPolicy, HeadwayLine, HeadwayNode
from headway.errors import LedgerMissing
from headway.ledger import Ledger
from headway.settings import Settings
from headway.site import LINE, POLICY


def register(settings: Settings) -> list[str]:
    """Register block types and create missing documents; names of those created."""
    wanted: list[tuple[type[Block], str, str]] = [
        (HeadwayNode, settings.node, f"node/{settings.node}"),
        (HeadwayContainerPolicy, "site", POLICY),
        (HeadwayLine, "site", LINE),
    ]
    created = []
    for kind, name, noted in wanted:
        kind.register_type_and_schema()
        try:
            kind.load(name)
        except ValueError:  # what Prefect raises for a document that is not there
            kind(**_known(settings, kind, noted)).save(name)
            created.append(f"{kind.get_block_type_slug()}/{name}")
    return created


def _known(settings: Settings, kind: type[Block], noted: str) -> dict[str, Any]:
    """What the ledger has of a document that is not in Prefect's database, as after a new one."""
    try:
        with closing(Ledger.find(settings.database_url)) as ledger:
            document = ledger.settings.get(noted) or {}
    except LedgerMissing:
        return {}
    return {key: value for key, value in document.items() if key in kind.model_fields}


if __name__ == "__main__":
    for document in register(Settings()):
        sys.stdout.write(f"created block {document}\n")
