"""How the broker reaches a PostgreSQL of the operator's own."""

from broker.cli.stop import Misuse
from broker.domain.database_url import with_password
from broker.setting_checks import read_password
from broker.setting_fields import Settings


def own_database(settings: Settings) -> str:
    """The URL of the settings, with the password of --database-password-file; "": there is none.  Raises Misuse."""
    if not settings.database_password_file:
        return settings.database_url
    if not settings.database_url:
        raise Misuse("--database-password-file needs --database-url: the embedded database has no password")
    try:
        return with_password(settings.database_url, read_password(settings.database_password_file))
    except ValueError as error:
        why = str(error) or "the database URL has a password too: one of them has to go"
        raise Misuse(f"--database-password-file {settings.database_password_file}: {why}") from None
