"""Registers headway's blocks, and makes the documents that are not there yet.

Run by `headway up`; a document that an operator has edited is left as it is.
"""

import sys
from typing import Any

from prefect.blocks.core import Block

from blocks.site import HeadwayContainerPolicy, HeadwayLine, HeadwayNode
from headway.settings import Settings


def register(settings: Settings) -> list[str]:
    """Register block types and create missing documents; names of those created."""
    wanted: list[tuple[type[Block], str, dict[str, Any]]] = [
        (HeadwayNode, settings.node, {}),
        (HeadwayContainerPolicy, "site", {}),
        (HeadwayLine, "site", {}),
    ]
    created = []
    for kind, name, values in wanted:
        kind.register_type_and_schema()
        try:
            kind.load(name)
        except ValueError:  # what Prefect raises for a document that is not there
            kind(**values).save(name)
            created.append(f"{kind.get_block_type_slug()}/{name}")
    return created


if __name__ == "__main__":
    for document in register(Settings()):
        sys.stdout.write(f"created block {document}\n")
