"""What the database lets a node see and change that has a login of its own

Policies hold for logins of nodes alone: the owner of the tables passes all of them, and to another
role that an operator has let in they leave what it was granted.
"""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"

_NODE = "(SELECT login_node())"
_MINE = "run_is_mine(run_id)"
_TEAM = "team IN (SELECT teams_of_login())"
_OF_A_RUN_IN_SIGHT = "EXISTS (SELECT FROM run WHERE run.run_id = {}.run_id)"

_FUNCTIONS = {
    "login_node() RETURNS text": "SELECT node FROM node_login WHERE role = session_user",
    # Whose programs are on the node, or are about to come.
    "teams_of_login() RETURNS SETOF text": "SELECT DISTINCT run.team::text FROM lease "
    "JOIN run USING (run_id) WHERE lease.node = login_node() AND lease.released_at IS NULL",
    "run_is_mine(which text) RETURNS boolean": "SELECT EXISTS (SELECT FROM run "
    "WHERE run_id = which AND node = login_node())",
    "was_here(which text) RETURNS boolean": "SELECT EXISTS (SELECT FROM attempt "
    "WHERE run_id = which AND node = login_node())",
    "has_part_here(gang text) RETURNS boolean": "SELECT EXISTS (SELECT FROM lease "
    "WHERE run_id = gang AND node = login_node() AND released_at IS NULL) "
    "OR EXISTS (SELECT FROM run WHERE gang_id = gang AND node = login_node())",
    "run_of_team_here(which text) RETURNS boolean": "SELECT EXISTS (SELECT FROM run "
    "WHERE run_id = which AND team IN (SELECT teams_of_login()))",
    "lease_is_mine(which bigint) RETURNS boolean": "SELECT EXISTS (SELECT FROM lease "
    "WHERE lease_id = which AND (node = login_node() OR run_is_mine(run_id)))",
    "may_begin_part(gang text, part int, of_attempt int, of_team text) RETURNS boolean": "SELECT "
    "EXISTS (SELECT FROM lease JOIN run USING (run_id) WHERE run_id = gang AND part > 0 "
    "AND lease.node = login_node() AND lease.gang_rank = part AND lease.attempt = of_attempt "
    "AND lease.released_at IS NULL AND run.team = of_team)",
}

_SEES = {
    "run": f"node = {_NODE} OR {_TEAM} OR was_here(run_id)",
    "lease": f"node = {_NODE} OR {_MINE} OR run_of_team_here(run_id)",
    "lease_gpu": "EXISTS (SELECT FROM lease WHERE lease.lease_id = lease_gpu.lease_id)",
    "lease_port": "EXISTS (SELECT FROM lease WHERE lease.lease_id = lease_port.lease_id)",
    **dict.fromkeys(("node_key", "node_token", "staged_use", "telemetry"), f"node = {_NODE}"),
    "gang_ask": "run_is_mine(gang_id) OR has_part_here(gang_id)",
    **dict.fromkeys(("code", "code_chunk", "upload", "job_array"), _TEAM),
    **{
        each: _OF_A_RUN_IN_SIGHT.format(each)
        for each in (
            "attempt", "step", "progress", "standing", "warning", "staging", "notice", "stored",
        )
    },
    **dict.fromkeys(("node", "staged", "trace", "setting", "team_uids"), "true"),
}  # fmt: skip

_CHANGES = {
    "node": f"name = {_NODE}",
    "lease": f"node = {_NODE} OR {_MINE}",
    **dict.fromkeys(("lease_gpu", "lease_port"), "lease_is_mine(lease_id)"),
    **dict.fromkeys(
        ("node_key", "node_token", "staged", "staged_use", "telemetry"), f"node = {_NODE}"
    ),
    "gang_ask": "run_is_mine(gang_id) OR has_part_here(gang_id)",
    **dict.fromkeys(
        ("attempt", "step", "progress", "standing", "warning", "staging", "notice"), _MINE
    ),
    "stored": "was_here(run_id)",
    "trace": "run_is_mine(left(run_id, 36))",
    "setting": f"name IN ('speeds/node/' || {_NODE}, 'start_calibration') "
    "OR starts_with(name, 'speeds/gpu/')",
    "team_uids": _TEAM,
}
"""Of rows as they are and as they are to be."""


def upgrade() -> None:
    op.create_table(
        "node_login",
        sa.Column("role", sa.String(length=63), primary_key=True),
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "node_key",
        sa.Column("node", sa.String(length=63), sa.ForeignKey("node.name"), primary_key=True),
        sa.Column("key", sa.String(), nullable=False),
    )
    op.create_table(
        "node_token",
        sa.Column("node", sa.String(length=63), primary_key=True),
        sa.Column("digest", sa.String(length=64), nullable=False, unique=True),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
    )
    # A worker of before goes on to report with its token, whose digest the next one keeps there.
    op.execute("INSERT INTO node_key SELECT name, worker_token FROM node WHERE worker_token <> ''")
    schema = op.get_bind().scalar(sa.text("SELECT quote_ident(current_schema())"))
    for signature, query in _FUNCTIONS.items():
        op.execute(
            f"CREATE FUNCTION {signature} LANGUAGE sql STABLE SECURITY DEFINER "
            f"SET search_path = {schema}, pg_temp AS $$ {query} $$"
        )
    for table in _SEES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY others ON {table} USING ({_NODE} IS NULL)")
    for table, which in _SEES.items():
        op.execute(f"CREATE POLICY seen ON {table} FOR SELECT USING ({which})")
    for table, which in _CHANGES.items():
        op.execute(f"CREATE POLICY added ON {table} FOR INSERT WITH CHECK ({which})")
        op.execute(f"CREATE POLICY changed ON {table} FOR UPDATE USING ({which})")
        op.execute(f"CREATE POLICY removed ON {table} FOR DELETE USING ({which})")
    own = f"node = {_NODE}"
    part = "may_begin_part(gang_id, gang_rank, attempt, team)"
    op.execute(f"CREATE POLICY added ON run FOR INSERT WITH CHECK ({own} AND {part})")
    # A part holds the row of its gang while it takes its lease, and changes nothing of it.
    op.execute(
        f"CREATE POLICY changed ON run FOR UPDATE USING ({own} OR has_part_here(run_id)) "
        f"WITH CHECK ({own})"
    )
    op.execute(
        "CREATE FUNCTION refuse_lease_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF OLD.released_at IS NOT NULL AND NEW.released_at IS NULL THEN "
        "RAISE EXCEPTION 'lease % was released', OLD.lease_id USING ERRCODE = 'check_violation'; "
        "END IF; "
        "IF OLD.run_id <> NEW.run_id AND NOT EXISTS (SELECT FROM run WHERE run_id = NEW.run_id "
        "AND gang_id = OLD.run_id AND gang_rank = OLD.gang_rank AND node = OLD.node) THEN "
        "RAISE EXCEPTION 'lease % was granted to another run', OLD.lease_id "
        "USING ERRCODE = 'check_violation'; END IF; "
        "RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER lease_stays_its_runs BEFORE UPDATE OF run_id, released_at ON lease "
        "FOR EACH ROW EXECUTE FUNCTION refuse_lease_moved()"
    )
