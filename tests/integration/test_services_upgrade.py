"""`headway upgrade` of a site that services keep: a backup and new tables, and nothing stopped."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from headway.admin.upgrade import upgrade
from headway.clock import SystemClock
from headway.ledger import Ledger
from headway.ledger.database import SCHEMA_VERSION
from headway.ledger.errors import LedgerOlder
from headway.node.daemon import gateway_daemon
from headway.settings import Settings
from headway.site import Site
from tests.support.ledger_faults import take_back_to_0006
from tests.support.postgresql import new_ledger


@pytest.mark.postgresql
def test_tables_are_changed_behind_a_backup_and_the_services_stay(tmp_path: Path) -> None:
    url = new_ledger()
    take_back_to_0006(url)
    settings = Settings(home=tmp_path / "home", ledger_url=SecretStr(url))
    site, said = Site(settings, SystemClock(), Ledger.find), list[str]()
    gateway_daemon(settings).claim()  # this process is the gateway, and no `headway up` began it
    with pytest.raises(LedgerOlder):
        site.make_ledger()
    file = upgrade(site, said.append)
    assert file is not None
    assert file.name.endswith("-schema-0006.backup")
    assert file.stat().st_size > 0
    assert Ledger.schema(url) == SCHEMA_VERSION
    assert said[-1].startswith("now restart the services of this site")
    assert gateway_daemon(settings).process() is not None
