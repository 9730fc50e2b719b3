"""Alembic's entry: migrations run on the connection that `Database.migrate` holds."""

from alembic import context
from sqlmodel import SQLModel

from headway.ledger import (  # noqa: F401 - fill the metadata
    access_tables,
    array_tables,
    code_tables,
    observed_tables,
    tables,
)

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=SQLModel.metadata,
    compare_type=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
