"""`broker migrate`: bring the schema of a PostgreSQL of the operator's own up to date."""

from collections.abc import Mapping
from typing import Any

from broker.cli.stop import Misuse, Stop
from broker.settings import Settings
from broker.store.schema import migrations, schema_state
from broker.store.schema.schema_state import DatabaseUnreachable, UrlUnusable
from broker.telemetry.log import set_up_log


def migrate(settings: Settings, flags: Mapping[str, Any]) -> int:
    """`flags`: whether to "move-schema".  Returns the exit code.  Raises Stop."""
    set_up_log(settings.log_level)
    if not settings.database_url:
        raise Misuse("migrate needs --database-url or DATABASE_URL; the embedded database migrates itself")
    try:
        if flags.get("move-schema"):
            _move(settings)
        revision = migrations.upgrade(settings.database_url, schema=settings.database_schema)
        state = schema_state.inspect(settings.database_url, settings.database_schema)
    except UrlUnusable as error:
        raise Misuse(str(error)) from error
    except DatabaseUnreachable as error:
        raise Stop(str(error)) from error
    print(f"The schema {state.schema} is at {revision}. {state.remark}".strip())  # noqa: T201
    return 0


def _move(settings: Settings) -> None:
    moved = migrations.move_schema(settings.database_url, schema=settings.database_schema)
    print("The tables were moved." if moved else "There is nothing to be moved.")  # noqa: T201
