"""`broker backup`: checks whether a restored database is complete, and prepares it for serving."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

from broker.app.settings.fields import Settings
from broker.cli.maintenance.bootstrap import used_database
from broker.cli.maintenance.secrets_commands import find_missing_keys, key_file_of
from broker.cli.server.announcements import say
from broker.client.stop import Stop
from broker.db.schema.after_restore import IdsUsedUp, go_on_after_restore
from broker.db.schema.backup_state import BackupState, inspect_backup
from broker.db.schema.migration_waits import MigrationUnderWay
from broker.db.schema.running_brokers import BrokersAtWork
from broker.db.schema.schema_state import DatabaseUnreachable
from broker.observability.log import set_up_log


def check(settings: Settings) -> int:
    """Returns the exit code: 1 if something is to be mended.  Raises Stop."""
    set_up_log(settings.log_level, settings.log_format)
    with used_database(settings) as (url, schema):
        try:
            state = inspect_backup(url, schema=schema)
        except DatabaseUnreachable as error:
            raise Stop(str(error)) from error
        for line in _lines(state):
            say(line)
        _check_secrets(settings, url, schema)
    if state.flaws:
        raise Stop(
            "the database is as it was at no moment: restore all of it, from one backup, before a broker serves it"
        )
    return 0


def _lines(state: BackupState) -> Iterator[str]:
    yield "This version can serve its schema."
    for name, count in state.flaws.items():
        yield f"To be mended: {count:,} {name}."
    if not state.flaws:
        yield "Messages, cursors and counters belong together."
    if state.known_until:
        yield f"It knows of nothing after {state.known_until:%Y-%m-%d %H:%M:%S} UTC, {_long(state)} ago."
    yield f"{state.out:,} responses were out, {state.past:,} of them past their deadline: these come again."
    if state.processes:
        are = "broker process serves" if state.processes == 1 else "broker processes serve"
        yield f"{state.processes} {are} from it."
    else:
        yield "No broker serves from it: after a restore run `broker backup restored` before one does."


def _long(state: BackupState) -> str:
    assert state.known_until is not None
    return str(timedelta(seconds=max(0, round((state.now - state.known_until).total_seconds()))))


def _check_secrets(settings: Settings, url: str, schema: str) -> None:
    """Whether the file of keys belongs to this database.  Raises Stop."""
    path = key_file_of(settings)
    if path is None:
        say("Secrets were not checked: give --secrets-key-file.")
        return
    missing = asyncio.run(find_missing_keys(url, schema, path))
    if missing:
        raise Stop(f"{path} has not all keys of secrets ({', '.join(missing)} missing): restore it, too")
    say(f"{path} has the keys of all secrets.")


def restored(settings: Settings) -> int:
    """Returns the exit code.  Raises Stop."""
    set_up_log(settings.log_level, settings.log_format)
    with used_database(settings) as (url, schema):
        _check_secrets(settings, url, schema)  # first: without its keys nothing is changed
        try:
            gap = go_on_after_restore(url, schema=schema)
        except (BrokersAtWork, IdsUsedUp, DatabaseUnreachable) as error:
            raise Stop(str(error)) from error
        except MigrationUnderWay as error:
            raise Stop("a migration is under way; try again when it is done") from error
    shards = "1 shard leaves" if gap.shards == 1 else f"{gap.shards:,} shards leave"
    say(f"{shards} out {gap.sequences:,} ids, which may have been given out before: none comes twice.")
    return 0
