"""What a release has is not changed: databases are at it.  A change of the schema is a new revision."""

from hashlib import sha256

from alembic.script import ScriptDirectory

from broker.domain.schema_revision import can_be_served
from broker.store.schema import migrations, schema_state

RELEASED = {
    "0001_initial.py": "7a61a4d8949ce909a6d38319eebb3731766cb693f695a8bb1be97fb5e9d6408f",
}


def test_released_revisions_are_as_they_were_released() -> None:
    versions = schema_state.migrations_directory() / "versions"
    assert {name: sha256((versions / name).read_bytes()).hexdigest() for name in RELEASED} == RELEASED


def test_each_revision_can_be_served_by_the_code_of_the_one_before() -> None:
    scripts = ScriptDirectory.from_config(migrations._config())
    for script in scripts.walk_revisions():
        assert script.down_revision is None or can_be_served(script.revision, str(script.down_revision))
        assert script.path.rpartition("/")[2].startswith(f"{script.revision}_")
