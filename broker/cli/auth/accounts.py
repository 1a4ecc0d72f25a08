"""`broker auth accounts`: the service accounts of a running broker."""

import click

from broker.cli.auth.api import Api, Json
from broker.cli.auth.calling import Shown, calling, texts
from broker.cli.command_line import Group

COMMANDS = Group("accounts", help="Service accounts: who programs are.")
_FIELDS = ("email", "displayName", "state")


def account_name(email: str) -> str:
    """The full name of an account, whatever its project."""
    return email if email.startswith("projects/") else f"projects/-/serviceAccounts/{email}"


def project_name(project: str) -> str:
    """`projects/p` for `p`."""
    return project if project.startswith("projects/") else f"projects/{project}"


@calling(COMMANDS, "create")
@click.option("--project", metavar="PROJECT", required=True, help="The project that the account is of.")
@click.option("--display-name", metavar="TEXT", default="", help="What people call it.")
@click.option("--description", metavar="TEXT", default="", help="What it is for.")
@click.argument("account_id", metavar="ID")
def create(api: Api, *, project: str, display_name: str, description: str, account_id: str) -> Shown:
    """Make the account ID@PROJECT.iam.broker.internal; it may do nothing until it is given a role."""
    account = {"displayName": display_name, "description": description}
    path = f"{project_name(project)}/serviceAccounts"
    return _shown([api.call("POST", path, {"accountId": account_id, "serviceAccount": account})])


@calling(COMMANDS, "list")
@click.option("--project", metavar="PROJECT", required=True, help="The project that the accounts are of.")
def list_(api: Api, *, project: str) -> Shown:
    """List the accounts of a project."""
    found = api.all_of(f"{project_name(project)}/serviceAccounts", "accounts")
    return Shown(found, _FIELDS, _rows(found))


@calling(COMMANDS, "delete")
@click.argument("email")
def delete(api: Api, *, email: str) -> Shown:
    """Delete an account with its keys."""
    return Shown(api.call("DELETE", account_name(email)), line=f"Deleted {email}.")


@calling(COMMANDS, "disable")
@click.argument("email")
def disable(api: Api, *, email: str) -> Shown:
    """Let nobody in with the account's keys and tokens, until it is enabled."""
    return Shown(api.call("POST", f"{account_name(email)}:disable", {}), line=f"Disabled {email}.")


@calling(COMMANDS, "enable")
@click.argument("email")
def enable(api: Api, *, email: str) -> Shown:
    """End that an account is disabled."""
    return Shown(api.call("POST", f"{account_name(email)}:enable", {}), line=f"Enabled {email}.")


def _shown(found: list[Json]) -> Shown:
    return Shown(found[0], _FIELDS, _rows(found))


def _rows(found: list[Json]) -> list[list[str]]:
    return texts([one | {"state": "disabled" if one.get("disabled") else "enabled"} for one in found], *_FIELDS)
