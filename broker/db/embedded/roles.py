"""The roles of the embedded PostgreSQL, their rights, and the rules by which they connect.

    broker      owns the database `broker` and all that is in it, and is no superuser: it cannot read files, run
                programs or change settings of the server.  The broker's processes connect as this role.
    postgres    the superuser that initdb created.  It is used only at a start, to check the rest.

There are no connections over TCP.  Over the socket, only the user who runs the broker and root may connect; the
kernel confirms the user (peer), so there is no password.
"""

from pathlib import Path

SUPERUSER, ROLE, DATABASE = "postgres", "broker", "broker"

ACCESS = "local all all peer map=broker\n"  # pg_hba.conf
PREPARATION = Path(__file__).with_name("prepare.sql").read_text()


def user_map(user: str) -> str:
    """pg_ident.conf: the user of this name may be any role, and so may root, who could be that user anyway."""
    quoted = user.replace('"', '""')
    return f'broker "{quoted}" all\nbroker root all\n'
