"""A lease carries the term in which it was granted, and none is granted outside of it"""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"


def upgrade() -> None:
    # A worker of a version before, which still runs, names no term: it can grant nothing more.
    op.add_column("lease", sa.Column("term", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(
        "CREATE FUNCTION refuse_lease_out_of_term() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "DECLARE newest bigint; "
        "BEGIN "
        "SELECT leader.term INTO newest FROM node JOIN leader ON leader.pool = node.pool "
        "WHERE node.name = NEW.node FOR SHARE OF leader; "
        "IF newest IS DISTINCT FROM NEW.term THEN "
        "RAISE EXCEPTION 'a lease on % in term %, where the term is %', "
        "NEW.node, NEW.term, newest USING ERRCODE = 'check_violation'; "
        "END IF; "
        "RETURN NEW; "
        "END $$"
    )
    op.execute(
        "CREATE TRIGGER lease_is_granted_in_term BEFORE INSERT ON lease "
        "FOR EACH ROW EXECUTE FUNCTION refuse_lease_out_of_term()"
    )
