"""`broker migrate`: bring the schema of a PostgreSQL of the operator's own up to date.

The embedded database needs it only to have its tables moved: else `broker serve` brings it up to date.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker.app.settings.fields import Settings
from broker.cli.announcements import say
from broker.cli.own_database import own_database
from broker.cli.stop import Misuse, Stop
from broker.embedded_postgres.cluster import Cluster, ClusterError
from broker.store.schema import migrations, schema_state
from broker.store.schema.schema_state import DatabaseUnreachable, UrlUnusable
from broker.telemetry.log import set_up_log


def migrate(settings: Settings, flags: Mapping[str, Any]) -> int:
    """`flags`: whether to "move_schema", to "distribute".  Returns the exit code.  Raises Stop."""
    set_up_log(settings.log_level, settings.log_format)
    is_move = bool(flags.get("move_schema"))
    if not settings.database_url and not is_move:
        raise Misuse("migrate needs --database-url or DATABASE_URL; the embedded database migrates itself")
    own_url = own_database(settings)
    try:
        with _database(settings, own_url) as url:
            if is_move:
                _move(url, settings.database_schema)
            revision = migrations.upgrade(url, schema=settings.database_schema)
            if flags.get("distribute"):
                _distribute(url, settings.database_schema)
            state = schema_state.inspect(url, settings.database_schema)
    except UrlUnusable as error:
        raise Misuse(str(error)) from error
    except (DatabaseUnreachable, ClusterError) as error:
        raise Stop(str(error)) from error
    say(f"The schema {state.schema} is at {revision}. {state.remark}".strip())
    return 0


@contextmanager
def _database(settings: Settings, own_url: str) -> Iterator[str]:
    """The URL of the operator's own database, or of the embedded one, which runs within the block.

    Raises Stop, ClusterError.
    """
    if own_url:
        yield own_url
        return
    cluster = Cluster(Path(settings.data_dir))
    if not cluster.exists():
        raise Stop(f"there is no database in {settings.data_dir}; give --data-dir, or --database-url for your own")
    try:
        cluster.open()
        yield cluster.url
    finally:
        cluster.close()


def _move(database_url: str, schema: str) -> None:
    moved = migrations.move_schema(database_url, schema=schema)
    say("The tables were moved." if moved else "There is nothing to be moved.")


def _distribute(database_url: str, schema: str) -> None:
    count = migrations.distribute_tables(database_url, schema=schema)
    say(
        f"{count} tables were distributed or made known to Citus."
        if count
        else "There is nothing to be distributed."
    )
