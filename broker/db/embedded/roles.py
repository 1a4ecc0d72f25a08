"""Who may do what in the embedded PostgreSQL: its roles, and who is let in as which.

    broker      owns the database `broker` and all that is in it, and is no superuser: it cannot read files, run
                programs or change settings of the server.  What the broker's processes are.
    postgres    the superuser that initdb made.  Only a start uses it, to see that the rest is as it should be.

Nobody is let in over TCP.  Over the socket only the user who runs the broker is, and root, by the kernel's word
for who he is (peer); so there is no password to keep.
"""

from pathlib import Path

SUPERUSER, ROLE, DATABASE = "postgres", "broker", "broker"

ACCESS = "local all all peer map=broker\n"  # pg_hba.conf
PREPARATION = Path(__file__).with_name("prepare.sql").read_text()


def user_map(user: str) -> str:
    """pg_ident.conf: the user of this name may be any role, and so may root, who could be that user anyway."""
    quoted = user.replace('"', '""')
    return f'broker "{quoted}" all\nbroker root all\n'
