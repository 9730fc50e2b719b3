"""Alembic's entry: migrations run on the connection that `Database.migrate` holds."""

from alembic import context
from sqlmodel import SQLModel

import headway.ledger  # noqa: F401 - fills the metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=SQLModel.metadata,
    compare_type=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
