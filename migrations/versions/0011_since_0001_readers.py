"""Who pulls and streams, as processes write it down.

Locks: creates only; touches nothing that exists.
"""

from alembic import op

revision = "0011_since_0001"
down_revision = "0010_since_0001"
branch_labels = None
depends_on = None

STATEMENTS = [
    """
    CREATE UNLOGGED TABLE readers (
        process_key text NOT NULL,
        subscription_id bigint NOT NULL,
        kind text NOT NULL,
        process text NOT NULL,
        client_id text NOT NULL,
        address text NOT NULL,
        principal text NOT NULL,
        since timestamptz NOT NULL,
        seen_at timestamptz NOT NULL,
        outstanding integer NOT NULL,
        oldest_since timestamptz,
        acks_per_second double precision NOT NULL,
        ack_p50 double precision,
        ack_p99 double precision
    )
    """,
    "CREATE INDEX readers_subscription_idx ON readers (subscription_id)",
    "CREATE INDEX readers_process_idx ON readers (process_key)",
]


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
