"""Functions for revisions: scripts of several statements, and SQL functions by name.

Each function is a file, functions/<name>.sql, that creates or replaces it.  A revision that changes a function
edits the file and installs it by name.  PL/pgSQL looks up tables and columns when a function runs, so the baseline
may install a function whose columns are added by a later revision.
"""

from importlib.resources import files

import psycopg
from alembic import op

_DIRECTORY = files("broker.db.schema").joinpath("functions")

# In the order in which they can be created: `unsettled` is inlined SQL and needs the one that it calls.
SQL_FUNCTIONS = (
    *("nth_sequence", "unsettled", "body_matches", "message_matches"),
    *(
        "application_role",
        "check_outbox_message",
        "check_outbox_delay",
        "check_outbox_bounds",
        "is_first_in_outbox",
    ),
    *("check_outbox_options", "write_outbox_message", "write_outbox_acks", "wake_outbox_relay", "notify_brokers"),
    *("try_lock", "lock_name"),
)


def create_functions(*names: str) -> str:
    """The script that creates or replaces these functions."""
    return "\n".join(_DIRECTORY.joinpath(f"{name}.sql").read_text(encoding="utf-8") for name in names)


def install_functions(*names: str) -> None:
    """Creates or replaces these functions, within a revision."""
    run_script(create_functions(*names))


def run_script(*scripts: str) -> None:
    """Runs the statements of scripts, which have no parameters, in one round trip, within a revision."""
    connection = op.get_bind().connection.driver_connection
    assert isinstance(connection, psycopg.Connection)
    connection.execute("\n".join(scripts).encode())
