"""`broker console`."""

import webbrowser

import click

from broker.client.calling import Session, calling
from broker.client.output import Shown


@calling("console", "broker console --no-open")
@click.option("--no-open", is_flag=True, help="Print the link only.")
def console(session: Session, *, no_open: bool) -> Shown:
    """Open the console in a browser, signed in as the caller; needs this broker.

    The link works once, within a minute.
    """
    made = session.api.call("POST", "signInLinks", {})
    link = session.api.url + made["path"]
    if not no_open:
        webbrowser.open(link)
    return Shown(data=made | {"uri": link}, script=f"{link}\n")


COMMANDS = console
