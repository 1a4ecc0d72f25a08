"""`broker auth accounts`: the service accounts of a running broker."""

import click

from broker.cli.auth.calling import calling
from broker.cli.auth.names import account_address, of_account
from broker.cli.client.api import Json
from broker.cli.client.calling import Session
from broker.cli.client.confirming import YES, confirm
from broker.cli.client.output import Shown
from broker.cli.command_line import Group

COMMANDS = Group("accounts", help="Service accounts: who programs are.")
_COLUMNS = ("email", "name", "state")

_account = click.argument("account")


@calling(COMMANDS, "create", "broker auth accounts create billing --display-name Billing")
@click.option("--display-name", metavar="TEXT", default="", help="What people call it.")
@click.option("--description", metavar="TEXT", default="", help="What it is for.")
@click.argument("account_id", metavar="ID")
def create(session: Session, *, display_name: str, description: str, account_id: str) -> Shown:
    """Make the account ID@PROJECT.iam.broker.internal; it may do nothing until it is given a role."""
    account = {"displayName": display_name, "description": description}
    body = {"accountId": account_id, "serviceAccount": account}
    made = session.api.call("POST", f"{session.project}/serviceAccounts", body)
    return Shown(data=made, columns=_COLUMNS, rows=_rows([made]))


@calling(COMMANDS, "list", "broker auth accounts list")
def list_(session: Session) -> Shown:
    """List the accounts of a project."""
    found = session.api.all_of(f"{session.project}/serviceAccounts", "accounts")
    return Shown(data=found, columns=_COLUMNS, rows=_rows(found), nothing="There is no service account.")


@calling(COMMANDS, "show", "broker auth accounts show billing")
@_account
def show(session: Session, *, account: str) -> Shown:
    """Show an account, given by its id in the project, its address or its unique id."""
    found = of_account(session, account, lambda name: session.api.call("GET", name))
    return Shown(data=found, fields=found)


@calling(COMMANDS, "delete", "broker auth accounts delete $EMAIL")
@_account
@YES
def delete(session: Session, *, account: str, yes: bool) -> Shown:
    """Delete an account with its keys."""
    email = account_address(session, account)
    confirm(f"Delete the account {email}, its keys and its roles, for good?", yes=yes)
    done = of_account(session, account, lambda name: session.api.call("DELETE", name))
    return Shown(data=done, line=f"Deleted {email}.")


@calling(COMMANDS, "disable", "broker auth accounts disable billing")
@_account
def disable(session: Session, *, account: str) -> Shown:
    """Refuse the account's keys and tokens until it is enabled."""
    done = of_account(session, account, lambda name: session.api.call("POST", f"{name}:disable", {}))
    return Shown(data=done, line=f"Disabled {account_address(session, account)}.")


@calling(COMMANDS, "enable", "broker auth accounts enable $EMAIL")
@_account
def enable(session: Session, *, account: str) -> Shown:
    """Accept the keys and tokens of a disabled account again."""
    done = of_account(session, account, lambda name: session.api.call("POST", f"{name}:enable", {}))
    return Shown(data=done, line=f"Enabled {account_address(session, account)}.")


def _rows(found: list[Json]) -> list[list[str]]:
    return [
        [one["email"], one.get("displayName", ""), "disabled" if one.get("disabled") else "enabled"]
        for one in found
    ]
