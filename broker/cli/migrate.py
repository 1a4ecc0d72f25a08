"""`broker migrate`: bring the schema of a PostgreSQL of the operator's own up to date."""

from broker.cli.stop import Misuse, Stop
from broker.settings import Settings
from broker.store import migrations
from broker.store.migrations import DatabaseUnreachable
from broker.telemetry.log import set_up_log


def migrate(settings: Settings) -> int:
    """Returns the exit code.  Raises Stop."""
    set_up_log(settings.log_level)
    if not settings.database_url:
        raise Misuse("migrate needs --database-url or DATABASE_URL; the embedded database migrates itself")
    try:
        revision = migrations.upgrade(settings.database_url)
    except DatabaseUnreachable as error:
        raise Stop(str(error)) from error
    print(f"The schema is at {revision}.")  # noqa: T201
    return 0
