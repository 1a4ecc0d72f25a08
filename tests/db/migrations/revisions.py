"""Made-up revisions, to migrate to what no version has yet."""

import shutil
from pathlib import Path

from broker.db.schema import schema_state
from broker.db.schema.schema_state import head_revision

_REVISION = """
from alembic import op
from broker.db.schema.online_index import build_index_online
from broker.db.schema.revision_steps import install_functions

revision = "{revision}"
down_revision = "{before}"
branch_labels = None
depends_on = None


def upgrade():
    {body}
"""


def add_columns(*tables: str) -> str:
    """A column with a default, for each table."""
    return f"""for table in {tables!r}:
        op.execute(f"ALTER TABLE {{table}} ADD COLUMN surplus integer NOT NULL DEFAULT 7")"""


ADD_COLUMNS = add_columns("topics", "subscriptions", "shards", "cursors", "message_batches")
BUILD_INDEXES = """build_index_online("batches_by_size", "message_batches", "(shard_id, size)")
    build_index_online("topics_by_time", "topics", "(created_at)")"""


def with_revisions(directory: Path, *bodies: str) -> Path:
    """A copy of the migrations with more of them, each with a body for its upgrade(); all of them only add."""
    made = directory / "migrations"
    shutil.copytree(schema_state.migrations_directory(), made)
    before = head_revision()
    for number, body in enumerate(bodies, 1):
        revision = made_up(number)
        text = _REVISION.format(revision=revision, before=before, body=body)
        (made / "versions" / f"{revision}_made_up.py").write_text(text)
        before = revision
    return made


def made_up(number: int) -> str:
    """The name of the first, second, … made-up revision: the code that can serve our schema can serve it."""
    head = head_revision()
    _, _, since = head.partition("_min_")
    return f"{int(head[:4]) + number:04}_min_{since or head[:4]}"


def with_contract(directory: Path, body: str) -> Path:
    """A copy of the migrations with one more that takes something away: only code that knows it can serve it."""
    made = directory / "migrations"
    shutil.copytree(schema_state.migrations_directory(), made)
    text = _REVISION.format(revision=contract(), before=head_revision(), body=body)
    (made / "versions" / f"{contract()}_made_up.py").write_text(text)
    return made


def contract() -> str:
    """The name of the revision of `with_contract`."""
    number = int(head_revision()[:4]) + 1
    return f"{number:04}_min_{number:04}"
