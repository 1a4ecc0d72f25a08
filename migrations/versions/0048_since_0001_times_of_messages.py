"""Until when messages are delivered.

Locks: `straggler_batches`, `message_batches` with its partitions, and their views, for a moment, as any new column
without a default does.  All in one revision: there are statements that read both tables with all their columns.
"""

from alembic import op

revision = "0048_since_0001"
down_revision = "0047_since_0001"
branch_labels = None
depends_on = None

# As the view was, with one column more.
EACH_MESSAGE = """
    CREATE OR REPLACE VIEW {view} AS
    SELECT b.shard_id, b.publish_time, b.last_seq - b.count + ordinal AS seq, b.last_seq, b.ordering_key,
           CASE
               WHEN b.shared_attributes IS NULL THEN coalesce(b.attributes[ordinal], '{{}}')
               ELSE coalesce(b.attributes[ordinal], '{{}}') || b.shared_attributes
           END AS attributes,
           b.data[ordinal] AS data,
           CASE b.count
               WHEN 1 THEN b.size
               ELSE octet_length(b.data[ordinal]) + coalesce(octet_length(b.attributes[ordinal]::text), 0)
           END AS size,
           CASE WHEN b.count > 1 OR b.size <= 2000000 THEN b.data[ordinal] END AS body,
           b.id_seqs[ordinal] AS id_seq, b.expires_at
    FROM {table} AS b CROSS JOIN LATERAL generate_series(1, b.count) AS ordinal
"""


def upgrade() -> None:
    for table, view in (("straggler_batches", "straggler_messages"), ("message_batches", "messages")):
        op.execute(f"ALTER TABLE {table} ADD COLUMN expires_at timestamptz")
        op.execute(EACH_MESSAGE.format(table=table, view=view))


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
