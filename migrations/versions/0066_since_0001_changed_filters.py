"""Filters that were changed: the earlier ones of a subscription, and a function that asks when a message came.

Locks: `subscriptions` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0066_since_0001"
down_revision = "0065_since_0001"
branch_labels = None
depends_on = None

# `path` looks into an array of the attributes, the body's JSON (an empty array if it cannot be read), and the
# publish time in seconds since 1970.  Bodies are read as body_matches reads them (revision 0025).
MESSAGE_MATCHES = """
    CREATE FUNCTION message_matches(attributes jsonb, body bytea, publish_time timestamptz, path jsonpath)
    RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
    DECLARE
        document jsonb := '[]';
    BEGIN
        IF octet_length(body) BETWEEN 1 AND 262144 AND get_byte(body, 0) IN (9, 10, 13, 32, 91, 123) THEN
            BEGIN
                document := convert_from(body, 'UTF8')::jsonb;
            EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
                document := '[]';
            END;
        END IF;
        RETURN jsonb_build_array(attributes, document, extract(epoch FROM publish_time)) @@ path;
    END
    $$
"""


def upgrade() -> None:
    op.execute(
        "ALTER TABLE subscriptions ADD COLUMN earlier_filters jsonb, ADD COLUMN filter_changed_at timestamptz,"
        " ADD COLUMN newest_filter_path jsonpath, ADD COLUMN newest_body_path jsonpath"
    )
    op.execute(MESSAGE_MATCHES)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
