"""`broker auth accounts`: the service accounts of a running broker."""

import click

from broker.cli.auth.calling import calling
from broker.cli.client.api import Json
from broker.cli.client.calling import Session
from broker.cli.client.confirming import YES, confirm
from broker.cli.client.output import Shown
from broker.cli.command_line import Group

COMMANDS = Group("accounts", help="Service accounts: who programs are.")
_COLUMNS = ("email", "name", "state")


def account_name(email: str) -> str:
    """The full name of an account, whatever its project."""
    return email if email.startswith("projects/") else f"projects/-/serviceAccounts/{email}"


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


@calling(COMMANDS, "delete", "broker auth accounts delete $EMAIL")
@click.argument("email")
@YES
def delete(session: Session, *, email: str, yes: bool) -> Shown:
    """Delete an account with its keys."""
    confirm(f"Delete the account {email}, its keys and its roles, for good?", yes=yes)
    return Shown(data=session.api.call("DELETE", account_name(email)), line=f"Deleted {email}.")


@calling(COMMANDS, "disable", "broker auth accounts disable $EMAIL")
@click.argument("email")
def disable(session: Session, *, email: str) -> Shown:
    """Let nobody in with the account's keys and tokens, until it is enabled."""
    return Shown(data=session.api.call("POST", f"{account_name(email)}:disable", {}), line=f"Disabled {email}.")


@calling(COMMANDS, "enable", "broker auth accounts enable $EMAIL")
@click.argument("email")
def enable(session: Session, *, email: str) -> Shown:
    """End that an account is disabled."""
    return Shown(data=session.api.call("POST", f"{account_name(email)}:enable", {}), line=f"Enabled {email}.")


def _rows(found: list[Json]) -> list[list[str]]:
    return [
        [one["email"], one.get("displayName", ""), "disabled" if one.get("disabled") else "enabled"]
        for one in found
    ]
