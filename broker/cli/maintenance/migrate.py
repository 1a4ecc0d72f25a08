"""`broker migrate`: updates the schema of a PostgreSQL that the operator runs.

`broker serve` updates the schema of the embedded PostgreSQL itself.
"""

from collections.abc import Mapping
from typing import Any

from broker.app.settings.fields import Settings
from broker.cli.server.announcements import say
from broker.cli.server.own_database import own_database
from broker.client.stop import Misuse, Stop
from broker.db.schema import migrations, schema_state
from broker.db.schema.schema_state import DatabaseUnreachable, UrlUnusable
from broker.observability.log import set_up_log


def migrate(settings: Settings, flags: Mapping[str, Any]) -> int:
    """`flags`: whether to "distribute".  Returns the exit code.  Raises Stop."""
    set_up_log(settings.log_level, settings.log_format)
    if not settings.database_url:
        raise Misuse("migrate needs --database-url or DATABASE_URL; the embedded database migrates itself")
    url = own_database(settings)
    try:
        revision = migrations.upgrade(url, schema=settings.database_schema)
        if flags.get("distribute"):
            _distribute(url, settings.database_schema)
        state = schema_state.inspect(url, settings.database_schema)
    except UrlUnusable as error:
        raise Misuse(str(error)) from error
    except DatabaseUnreachable as error:
        raise Stop(str(error)) from error
    say(f"The schema {state.schema} is at {revision}. {state.remark}".strip())
    return 0


def _distribute(database_url: str, schema: str) -> None:
    count = migrations.distribute_tables(database_url, schema=schema)
    say(
        f"{count} tables were distributed or made known to Citus."
        if count
        else "There is nothing to be distributed."
    )
