"""What looks into bodies for filters: a function, and the column `body` of the views, the data unless it is large.

Locks: the views `messages` and `straggler_messages`, for a moment.
"""

from alembic import op

revision = "0025_since_0001"
down_revision = "0024_since_0001"
branch_labels = None
depends_on = None

# As the view was, with one column more: that of a row of its own is not even fetched if it is too large.
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
           CASE WHEN b.count > 1 OR b.size <= 2000000 THEN b.data[ordinal] END AS body
    FROM {table} AS b CROSS JOIN LATERAL generate_series(1, b.count) AS ordinal
"""

# `path` looks into an array of the attributes and, if it can be read, the body's JSON.  Only objects, arrays and
# white space can begin one with fields; where none is begun no subtransaction need be.  What is caught is what
# jsonb, or the text's encoding, refuses: memory that runs out must not look like a body without fields.
BODY_MATCHES = """
    CREATE FUNCTION body_matches(attributes jsonb, body bytea, path jsonpath) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE AS $$
    DECLARE
        message jsonb;
    BEGIN
        IF octet_length(body) BETWEEN 1 AND 262144 AND get_byte(body, 0) IN (9, 10, 13, 32, 91, 123) THEN
            BEGIN
                message := jsonb_build_array(attributes, convert_from(body, 'UTF8')::jsonb);
            EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
                message := NULL;
            END;
        END IF;
        RETURN coalesce(message, jsonb_build_array(attributes)) @@ path;
    END
    $$
"""


def upgrade() -> None:
    for table, view in (("straggler_batches", "straggler_messages"), ("message_batches", "messages")):
        op.execute(EACH_MESSAGE.format(table=table, view=view))
    op.execute(BODY_MATCHES)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
