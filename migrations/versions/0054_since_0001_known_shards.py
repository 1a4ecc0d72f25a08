"""What the catalog knows of shards and of cursors that are held, under names of its own.

Views, which nothing is written to; where the tables behind them are distributed over nodes, tables take their place
(broker/store/schema/distribution.py), so that a topic is read without asking all nodes.

Locks: none that a publish or a claim waits for.
"""

from alembic import op

revision = "0054_since_0001"
down_revision = "0053_since_0001"
branch_labels = None
depends_on = None

VIEWS = {
    "known_shards": "SELECT shard_id, topic_id, level FROM shards",
    "held_claims": "SELECT DISTINCT subscription_id FROM cursors WHERE paused",
}


def upgrade() -> None:
    for name, query in VIEWS.items():
        op.execute(f"CREATE VIEW {name} AS {query}")
        for act in ("INSERT", "UPDATE", "DELETE"):
            op.execute(f"CREATE RULE {name}_{act.lower()} AS ON {act} TO {name} DO INSTEAD NOTHING")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
