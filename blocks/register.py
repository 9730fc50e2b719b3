"""Registers work pool, deployments and blocks, and makes the documents that are not there yet.

    python -m blocks.register [pool]      (only the pool, if so)

Run by `headway up` and `headway node join`; a document that an operator has edited is left as
it is. All of it is one process: to import Prefect takes longer than what is done with it.
"""

import os
import sys
from contextlib import closing
from typing import Any

from prefect.blocks.core import Block
from prefect.cli import app

from blocks.site import HeadwayContainerPolicy, HeadwayLine, HeadwayNode
from headway.errors import LedgerMissing
from headway.leader.mlflow import HeadwayMlflow
from headway.leader.notification import HeadwayNotification
from headway.ledger import Ledger
from headway.model.engine import LEADS_TO, SAMPLE
from headway.policy.settings import LINE
from headway.prefect.auth import site_auth
from headway.prefect.client import PrefectServer
from headway.settings import Settings
from headway.site import POLICY


def register(settings: Settings) -> list[str]:
    """Register block types and create missing documents; names of those created."""
    wanted: list[tuple[type[Block], str, str]] = [
        (HeadwayNode, settings.node, f"node/{settings.node}"),
        (HeadwayContainerPolicy, "site", POLICY),
        (HeadwayLine, "site", LINE),
    ]
    HeadwayNotification.register_type_and_schema()
    HeadwayMlflow.register_type_and_schema()
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
    document = _noted(settings, noted)
    return {key: value for key, value in document.items() if key in kind.model_fields}


def _noted(settings: Settings, name: str) -> dict[str, Any]:
    try:
        with closing(Ledger.find(settings.database_url)) as ledger:
            return ledger.settings.get(name) or {}
    except LedgerMissing:
        return {}


def prefect(*words: str) -> None:
    """What `prefect …` does, in this process.

    Raises:
        SystemExit: It failed.
    """
    sys.argv = ["prefect", "--no-prompt", *words]
    try:
        app()
    except SystemExit as ended:
        if ended.code:
            raise


def main(settings: Settings, *, only_pool: bool) -> None:
    """Register all of it, the pool first: deployments need it."""
    prefect("work-pool", "create", settings.pool, "--type", "gpu-node", "--overwrite")
    if only_pool:
        return
    engines = _noted(settings, LEADS_TO).get("pool")
    os.environ["HEADWAY_LEADS_TO"] = engines or settings.pool
    prefect("deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
    if engines:
        with PrefectServer(settings.api_url, auth=site_auth(settings)) as server:
            server.lead_to(engines, SAMPLE)
    for document in register(settings):
        sys.stdout.write(f"created block {document}\n")


if __name__ == "__main__":
    own = Settings()
    main(own, only_pool=sys.argv[1:] == ["pool"])
    (own.state_dir / "register.done").touch()
