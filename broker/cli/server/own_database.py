"""Connects the broker to a PostgreSQL that the operator runs."""

from broker.app.settings.checks import read_password
from broker.app.settings.fields import Settings
from broker.client.stop import Misuse
from broker.db.database_url import DEFAULT_SCHEMA, with_password


def own_database(settings: Settings) -> str:
    """The URL of the settings, with the password of --database-password-file; "": there is none.  Raises Misuse."""
    if settings.database_password_file and not settings.database_url:
        raise Misuse("--database-password-file needs --database-url: the embedded database has no password")
    return _with_password(settings, settings.database_url)


def replica_database(settings: Settings) -> str:
    """The URL of the replica, with the same password: it has the primary's roles.  Raises Misuse."""
    if settings.replica_database_url and not settings.database_url:
        raise Misuse("--replica-database-url needs --database-url: the embedded database has no standby")
    return _checked(settings, settings.replica_database_url, "--replica-database-url")


def hot_database(settings: Settings) -> str:
    """The URL of the nodes for hot statements, with the same password.  Raises Misuse."""
    if settings.hot_database_url and not settings.database_url:
        raise Misuse("--hot-database-url needs --database-url: the embedded database has no other nodes")
    return _checked(settings, settings.hot_database_url, "--hot-database-url")


def _checked(settings: Settings, url: str, option: str) -> str:
    url = _with_password(settings, url)
    if url:
        from broker.db.driver.connection_parameters import connection_parameters  # loads psycopg

        try:
            connection_parameters(url, schema=DEFAULT_SCHEMA)
        except ValueError as error:
            raise Misuse(f"{option}: {error}") from None
    return url


def _with_password(settings: Settings, url: str) -> str:
    if not settings.database_password_file or not url:
        return url
    try:
        return with_password(url, read_password(settings.database_password_file))
    except ValueError as error:
        why = str(error) or "the database URL has a password too: one of them has to go"
        raise Misuse(f"--database-password-file {settings.database_password_file}: {why}") from None
