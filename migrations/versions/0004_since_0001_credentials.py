"""Credentials: service accounts and their public keys, API keys, the keys that sign access tokens; and the version
of all that access depends on.

Locks: creates only; touches nothing that exists.
"""

from alembic import op

revision = "0004_since_0001"
down_revision = "0003_since_0001"
branch_labels = None
depends_on = None

STATEMENTS = [
    """
    CREATE TABLE access_version (
        only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
        version bigint NOT NULL,
        credentials bigint NOT NULL
    )
    """,
    "INSERT INTO access_version (version, credentials) VALUES (1, 1)",
    """
    CREATE TABLE service_accounts (
        email text PRIMARY KEY,
        project text NOT NULL,
        unique_id text NOT NULL UNIQUE,
        display_name text NOT NULL,
        description text NOT NULL,
        disabled boolean NOT NULL,
        created_at timestamptz NOT NULL
    )
    """,
    "CREATE INDEX service_accounts_project_idx ON service_accounts (project, email)",
    """
    CREATE TABLE service_account_keys (
        key_id text PRIMARY KEY,
        email text NOT NULL REFERENCES service_accounts (email) ON DELETE CASCADE,
        public_key text NOT NULL,
        created_at timestamptz NOT NULL
    )
    """,
    "CREATE INDEX service_account_keys_email_idx ON service_account_keys (email, key_id)",
    """
    CREATE TABLE api_keys (
        name text PRIMARY KEY,
        display_name text NOT NULL,
        digest bytea NOT NULL UNIQUE,
        roles text[] NOT NULL,
        resources text[] NOT NULL,
        created_at timestamptz NOT NULL
    )
    """,
    """
    CREATE TABLE access_token_keys (
        key_id text PRIMARY KEY,
        secret bytea NOT NULL,
        created_at timestamptz NOT NULL
    )
    """,
]


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
