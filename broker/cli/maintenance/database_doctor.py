"""The checks of `broker doctor` that query a PostgreSQL: the databases that `broker serve` would use."""

from collections.abc import Mapping, Sequence

from broker.app.settings.find import find_settings
from broker.cli.server.own_database import hot_database, own_database, replica_database
from broker.features.inspect.fleet.database_checks import Check, make_checks

SETTINGS = (
    "database_url",
    "database_password_file",
    "database_schema",
    "replica_database_url",
    "replica_max_lag_seconds",
    "hot_database_url",
)


def find_database_checks(options: Mapping[str, str | None]) -> Sequence[Check]:
    """The checks of the databases that `broker serve` would use with these options (SETTINGS) and this environment.

    The embedded database has none.  Raises Misuse and SettingError, as `broker serve` does.
    """
    in_force = find_settings(options, names=SETTINGS)
    settings = in_force.settings
    return make_checks(
        own_database(settings),
        schema=settings.database_schema,
        replica_url=replica_database(settings),
        late_seconds=settings.replica_max_lag_seconds,
        hot_url=hot_database(settings),
        ignored_settings=in_force.ignored,
    )
