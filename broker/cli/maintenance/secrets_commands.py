"""`broker secrets`: encrypts the secrets in the database with a new key (`rotate`), or decrypts them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from broker.access.secrets.keys import FILE_NAME, SecretsKey, format_keys, make_key, read_keys
from broker.access.secrets.secrets import SEALED, Secrets, is_sealed, key_id_of
from broker.app.settings.fields import Settings
from broker.cli.maintenance.bootstrap import used_database
from broker.cli.server.announcements import say
from broker.client.private_file import write_private_file
from broker.client.stop import Misuse, Stop
from broker.core.context.process_rows import list_processes
from broker.db.driver.database import Database
from broker.features.secrets.rows import WEBHOOKS, StoredSecrets, delete_keys, list_secrets_unlike
from broker.features.secrets.worker import seal_anew
from broker.model.errors import BrokerError, os_reason
from broker.observability.log import set_up_log

_RUNNING = timedelta(seconds=10)  # since its last heartbeat
_NO_PREFIX = f"{SEALED}-:"  # of no key: whatever is secret is unlike it


def rotate(settings: Settings, flags: Mapping[str, Any]) -> int:
    """Rotates the keys while brokers run.  Returns the exit code.  Raises Stop."""
    return _on_database(settings, lambda database, path: _rotate(database, path, flags))


def decrypt(settings: Settings) -> int:
    """Decrypts all secrets, for brokers without a key; none may run.  Returns the exit code.  Raises Stop."""
    return _on_database(settings, _decrypt)


def _on_database(settings: Settings, work: Callable[[Database, Path], Awaitable[None]]) -> int:
    set_up_log(settings.log_level, settings.log_format)
    path = _key_file(settings)

    async def run(url: str, schema: str) -> None:
        database = Database(url, schema=schema, pool_size=1)
        try:
            await work(database, path)
        finally:
            await database.close()

    with used_database(settings) as (url, schema):
        try:
            asyncio.run(run(url, schema))
        except BrokerError as error:
            raise Stop(f"the database refuses: {error.message}") from error
        except OSError as error:
            raise Stop(
                f"{path} cannot be read or written: {os_reason(error)} (`rotate --keep-file` uses it as it is)"
            ) from error
        except ValueError as error:
            raise Stop(f"{path}: {error}") from None
    return 0


def key_file_of(settings: Settings) -> Path | None:
    """Returns the file with the keys of secrets; None: the settings have none."""
    if settings.secrets_key_file:
        return Path(settings.secrets_key_file)
    return None if settings.database_url else Path(settings.data_dir) / FILE_NAME


async def find_missing_keys(url: str, schema: str, path: Path) -> list[str]:
    """The ids of keys that secrets in a database are encrypted with, and a file does not have.  Raises Stop."""
    database = Database(url, schema=schema, pool_size=1)
    try:
        known = {key.key_id for key in _keys(path)}
        async with database.transaction() as connection:
            return sorted(_key_ids(await list_secrets_unlike(connection, prefix=_NO_PREFIX)) - known)
    except (OSError, ValueError) as error:
        raise Stop(f"{path} cannot be read: {error}") from error
    finally:
        await database.close()


def _key_file(settings: Settings) -> Path:
    path = key_file_of(settings)
    if path is None:
        raise Misuse("give --secrets-key-file, the file with the keys that brokers on this database have")
    return path


async def _rotate(database: Database, path: Path, flags: Mapping[str, Any]) -> None:
    secrets = Secrets(str(path)) if _keys(path) else Secrets()
    await _check(database, secrets, discards=flags["discard_unreadable"])
    if not flags["keep_file"]:
        await _add_key(database, path)
    secrets = Secrets(str(path))
    secrets.is_sealing = True
    done, unreadable = await seal_anew(database, secrets, await _others(database, secrets))
    if flags["discard_unreadable"]:
        await _discard(database, unreadable)
    say(f"{_are(done)} encrypted with the key {secrets.key_id}, the first of {path}.")


async def _decrypt(database: Database, path: Path) -> None:
    async with database.transaction() as connection:
        if await list_processes(connection, seen_since=await database.now() - _RUNNING):
            raise Stop(
                "a broker runs on the database, which would encrypt everything again: stop all of them first"
            )
        rows = await list_secrets_unlike(connection, prefix=_NO_PREFIX)
    sealed = [row for row in rows if any(map(is_sealed, row.stored))]
    done, unreadable = await seal_anew(database, Secrets(str(path)), sealed)
    say(f"{_are(done)} in clear text now; a broker with a key encrypts them when it starts.")
    if unreadable:
        raise Stop(f"{len(unreadable):,} rows are encrypted with keys that {path} does not have, and stay so")


async def _others(database: Database, secrets: Secrets) -> list[StoredSecrets]:
    """Returns the secrets that are not encrypted with the current key."""
    async with database.transaction() as connection:
        return await list_secrets_unlike(connection, prefix=f"{SEALED}{secrets.key_id}:")


async def _check(database: Database, secrets: Secrets, *, discards: bool) -> None:
    """Checks that all secrets can be decrypted, before anything is changed.  Raises Stop."""
    used = _key_ids(await _others(database, secrets)) - secrets.key_ids
    if used and not discards:
        raise Stop(
            f"some secrets are encrypted with keys that are not there ({', '.join(sorted(used))}): put them back "
            "into the file, or give --discard-unreadable if they are lost"
        )


def _key_ids(rows: Sequence[StoredSecrets]) -> set[str]:
    return {key_id_of(stored) for row in rows for stored in row.stored if is_sealed(stored)}


async def _add_key(database: Database, path: Path) -> None:
    """Adds a key at the top of the file.

    The previous key stays, for brokers that have not read the file again; older keys that are not in use are
    removed.
    """
    keys = _keys(path)
    async with database.transaction() as connection:
        used = _key_ids(await list_secrets_unlike(connection, prefix=_NO_PREFIX))
    kept = [key for index, key in enumerate(keys) if index == 0 or key.key_id in used]
    write_private_file(path, format_keys([make_key(), *kept]))


def _are(secrets: int) -> str:
    return "1 secret is" if secrets == 1 else f"{secrets:,} secrets are"


def _keys(path: Path) -> Sequence[SecretsKey]:
    """Reads the keys of the file, if it exists.  Raises ValueError, OSError."""
    return read_keys(path) if path.exists() else ()


async def _discard(database: Database, unreadable: Sequence[StoredSecrets]) -> None:
    """Keys are made anew by brokers; a webhook's secrets can only be given anew, by who knows them."""
    async with database.transaction() as connection:
        await delete_keys(connection, keys=unreadable)
    for row in unreadable:
        if row.table == WEBHOOKS:
            say(f"{row.row}: its webhook secrets are lost; set new ones (extensions.push.webhookSecrets).")
