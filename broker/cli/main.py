"""`broker`: the command line."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  (where it runs from a checkout, no installer has looked)
    raise SystemExit("broker: Python 3.11 or newer is needed; this is {}.{}".format(*sys.version_info))

from collections.abc import Mapping, Sequence
from typing import Any

import click

from broker.app import process_environment
from broker.app.settings.fields import NAMES
from broker.app.settings.find import SettingError, SettingsInForce, find_settings
from broker.cli.server_commands import Command, make_cli
from broker.client import terminal
from broker.client.command_line import Commands, misuse
from broker.client.exit_codes import INTERRUPTED
from broker.client.stop import Stop
from broker.observability.log import one_line
from broker.version import version


def _serve(in_force: SettingsInForce, flags: Mapping[str, Any]) -> int:
    from broker.cli.server.serve import serve

    return serve(in_force, verbose=bool(flags.get("verbose")))


def _migrate(in_force: SettingsInForce, flags: Mapping[str, Any]) -> int:
    from broker.cli.maintenance.migrate import migrate

    return migrate(in_force.settings, flags)


def _settings(in_force: SettingsInForce, _: Mapping[str, Any]) -> int:
    from broker.cli.maintenance.show_settings import show_settings

    return show_settings(in_force)


def _database(in_force: SettingsInForce, options: Mapping[str, Any]) -> int:
    from broker.cli.maintenance.database import run_on_embedded

    return run_on_embedded(in_force.settings, options["program"])


def _bootstrap(in_force: SettingsInForce, options: Mapping[str, Any]) -> int:
    from broker.cli.maintenance.bootstrap import bootstrap

    return bootstrap(in_force.settings, options["key_file"])


def _rotate_secrets(in_force: SettingsInForce, flags: Mapping[str, Any]) -> int:
    from broker.cli.maintenance.secrets_commands import rotate

    return rotate(in_force.settings, flags)


def _decrypt_secrets(in_force: SettingsInForce, _: Mapping[str, Any]) -> int:
    from broker.cli.maintenance.secrets_commands import decrypt

    return decrypt(in_force.settings)


def _backup_check(in_force: SettingsInForce, _: Mapping[str, Any]) -> int:
    from broker.cli.maintenance.backup_commands import check

    return check(in_force.settings)


def _restored(in_force: SettingsInForce, _: Mapping[str, Any]) -> int:
    from broker.cli.maintenance.backup_commands import restored

    return restored(in_force.settings)


def _grant(in_force: SettingsInForce, options: Mapping[str, Any]) -> int:
    from broker.cli.maintenance.sql_commands import grant_role

    return grant_role(in_force.settings, options["role"], options["functions"])


def _revoke(in_force: SettingsInForce, options: Mapping[str, Any]) -> int:
    from broker.cli.maintenance.sql_commands import revoke_role

    return revoke_role(in_force.settings, options["role"])


def _grants(in_force: SettingsInForce, _: Mapping[str, Any]) -> int:
    from broker.cli.maintenance.sql_commands import show_grants

    return show_grants(in_force.settings)


def _refused(in_force: SettingsInForce, flags: Mapping[str, Any]) -> int:
    from broker.cli.maintenance.sql_commands import show_refused

    return show_refused(in_force.settings, again=bool(flags.get("again")))


_OF_SECRETS = (
    "database_url",
    "database_password_file",
    "database_schema",
    "data_dir",
    "secrets_key_file",
    "log_level",
    "log_format",
)

_OF_DATABASES = (
    "database_url",
    "database_password_file",
    "database_schema",
    "data_dir",
    "log_level",
    "log_format",
)

_ROW = ""
# Commands that call a server of the API, this broker or any other, and where each is: a module of client/commands,
# or a row of resources.py.
CLIENTS = {
    "topic": _ROW,
    "sub": _ROW,
    "snapshot": _ROW,
    "schema": _ROW,
    "transform": "broker.features.transforms.command",
    "quota": "broker.features.quotas.command",
    "audit": "broker.features.audit.command",
    "projects": "broker.features.projects.command",
    "search": "broker.features.search.command",
    "whoami": "broker.features.iam.commands.whoami",
    "console": "broker.features.iam.commands.console",
    "events": "broker.features.events.command",
    "publish": "broker.cli.commands.publish",
    "scheduled": _ROW,
    "schedule": _ROW,
    "mask": _ROW,
    "view": _ROW,
    "template": _ROW,
    "link": _ROW,
    "pull": "broker.cli.commands.pull",
    "tail": "broker.features.inspect.tail_command",
    "peek": "broker.features.inspect.peek_command",
    "message": "broker.features.inspect.message_command",
    "lag": "broker.features.lag_board.command",
    "top": "broker.features.lag_board.top_command",
    "history": "broker.features.history.command",
    "fleet": "broker.features.inspect.fleet_command",
    "push": _ROW,
    "share": "broker.features.share_links.command",
    "seek": "broker.cli.commands.seek",
    "purge": "broker.features.purge.command",
    "reset": "broker.features.reset.command",
    "dlq": "broker.features.dead_letters.command",
    "op": _ROW,
    "doctor": "broker.cli.commands.doctor",
    "bench": "broker.cli.commands.bench",
    "apply": "broker.features.declarations.apply_command",
    "export": "broker.features.declarations.export_command",
    "context": "broker.cli.commands.context",
    "mcp": "broker.cli.commands.mcp",
    "completion": "broker.cli.commands.completion",
    "docs": "broker.cli.commands.docs",
    "help": "broker.cli.commands.help",
}

# What `broker --help` shows: all of it on one screen.
SECTIONS = {
    "A broker": ("serve", "migrate", "settings", "database", "secrets", "backup"),
    "Who may call": ("auth", "whoami", "share", "audit", "quota", "sql"),
    "Resources": ("projects", "topic", "sub", "snapshot", "schema", "events", "apply", "export", "reset"),
    "Settings of a project": ("mask", "view", "template", "link"),
    "Messages": ("publish", "scheduled", "schedule", "pull", "tail", "seek", "purge", "transform"),
    "What failed": ("dlq", "push", "op"),
    "Looking": ("console", "search", "lag", "top", "history", "peek", "message", "doctor", "fleet"),
    "This program": ("help", "docs", "bench", "context", "completion", "mcp"),
}


def _resource(name: str) -> Commands:
    return Commands("broker.cli.resources", resource=name)


COMMANDS: dict[str, Command | Commands] = {
    "serve": Command(
        summary="serve the API; without a database URL on an embedded PostgreSQL",
        settings=NAMES,
        run=_serve,
        flags={"verbose": "say how long each step of the start takes"},
        examples=(
            "broker serve --data-dir data",
            "broker serve --data-dir data --project shop --apply shop.yaml",
        ),
    ),
    "migrate": Command(
        summary="bring the schema of a PostgreSQL of your own up to date",
        settings=("database_url", "database_password_file", "database_schema", "log_level", "log_format"),
        run=_migrate,
        examples=("broker migrate --database-url $DATABASE_URL",),
        flags={
            "distribute": "then distribute the tables of messages over the nodes of a Citus cluster "
            "(experimental), whose coordinator the URL names; no broker may run",
        },
    ),
    "settings": Command(
        summary="show the settings that `broker serve` would have, and where each is from",
        settings=NAMES,
        run=_settings,
        examples=("broker settings --data-dir data",),
    ),
    "auth bootstrap": Command(
        summary="make a key that may do everything, for `--auth required`",
        settings=(
            "database_url",
            "database_password_file",
            "database_schema",
            "data_dir",
            "issuer",
            "host",
            "port",
            "log_level",
            "log_format",
        ),
        values={"key_file": "the file for the key (JSON); it must not exist"},
        run=_bootstrap,
        examples=("broker auth bootstrap --data-dir data --key-file admin.json",),
    ),
    "secrets rotate": Command(
        summary="encrypt what is secret in the database with a new key; brokers may run",
        settings=_OF_SECRETS,
        flags={
            "keep_file": "make no new key: encrypt with the first one of the file",
            "discard_unreadable": "drop what lost keys have encrypted; brokers make new keys for tokens",
        },
        run=_rotate_secrets,
        examples=("broker secrets rotate --data-dir data",),
    ),
    "secrets decrypt": Command(
        summary="write what is secret in clear text, for brokers without a key; none may run",
        settings=_OF_SECRETS,
        run=_decrypt_secrets,
        examples=("broker secrets decrypt --data-dir data",),
    ),
    "backup check": Command(
        summary="look whether a database is whole, above all after a restore",
        settings=_OF_SECRETS,
        run=_backup_check,
        examples=("broker backup check --data-dir data",),
    ),
    "backup restored": Command(
        summary="go on with ids that nobody has, after a restore; no broker may run",
        settings=_OF_SECRETS,
        run=_restored,
        examples=("broker backup restored --data-dir data",),
    ),
    "sql grant": Command(
        summary="let a role of PostgreSQL publish and acknowledge in a project, in its own transactions",
        settings=(*_OF_DATABASES, "project"),
        words=("role",),
        texts={"functions": ("pubsub", "the schema of the functions; it is made")},
        run=_grant,
        examples=("broker sql grant shop_app --data-dir data --project shop",),
    ),
    "sql revoke": Command(
        summary="take that back",
        settings=(*_OF_DATABASES, "project"),
        words=("role",),
        run=_revoke,
        examples=("broker sql revoke shop_app --data-dir data --project shop",),
    ),
    "sql grants": Command(
        summary="list the roles that may, their projects and functions",
        settings=_OF_DATABASES,
        run=_grants,
        examples=("broker sql grants --data-dir data",),
    ),
    "sql refused": Command(
        summary="list committed messages that could not be published any more, and why",
        settings=_OF_DATABASES,
        flags={"again": "try them once more, on the topics that have their names now"},
        run=_refused,
        examples=("broker sql refused --data-dir data",),
    ),
    "auth accounts": _resource("auth accounts"),
    "auth keys": _resource("auth keys"),
    "auth api-keys": _resource("auth api-keys"),
    "auth roles": _resource("auth roles"),
    "auth policy": Commands("broker.features.iam.commands.policy"),
    "auth token": Commands("broker.features.iam.commands.token"),
    **{name: Commands(module) if module else _resource(name) for name, module in CLIENTS.items()},
    "database": Command(
        summary="run psql, pg_dump or pg_restore on the embedded PostgreSQL",
        settings=("data_dir",),
        program="psql",
        run=_database,
        examples=("broker database --data-dir data psql -c 'SELECT name FROM topics'",),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.  Returns the exit code: 0, 1 (it could not be done), 2 (it makes no sense), and what
    client/exit_codes.py has of commands that call a server.

    Of what is not 0 a line on standard error says what was wrong.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    terminal.set_up_output()
    process_environment.tidy_environment()
    try:
        code: int = command_line().main(list(arguments), prog_name="broker", standalone_mode=False)
        return code
    except click.UsageError as error:
        _complain(str(misuse(error)))
        return 2
    except click.Abort:  # Ctrl-C
        return INTERRUPTED
    except (Stop, SettingError) as error:
        _complain(str(error))
        return error.exit_code if isinstance(error, Stop) else 2


def command_line() -> click.Group:
    """Returns the command line with all commands."""
    return make_cli(COMMANDS, SECTIONS, version=version, run=_run)


def _run(command: Command, options: Mapping[str, Any]) -> int:
    in_force = find_settings(options, names=command.settings)
    for warning in in_force.ignored:
        _complain(warning)
    if not in_force.settings.database_url:
        process_environment.forget_postgresql_variables()
    return command.run(in_force, options)


def _complain(message: str) -> None:
    terminal.write_line(f"broker: {one_line(' '.join(message.split()))}", error=True)
