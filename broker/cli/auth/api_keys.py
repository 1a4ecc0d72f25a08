"""`broker auth api-keys`: the API keys of a running broker."""

import click

from broker.cli.auth.calling import calling
from broker.cli.auth.names import resource_of, role_of
from broker.cli.client.calling import Session
from broker.cli.client.confirming import YES, confirm
from broker.cli.client.connection import full_name
from broker.cli.client.output import Shown
from broker.cli.client.words import leaf, short_time
from broker.cli.command_line import Group

COMMANDS = Group("api-keys", help="API keys, for what has no library.")


@calling(COMMANDS, "create", "broker auth api-keys create --role subscriber --resource topics/orders")
@click.option("--display-name", metavar="TEXT", default="", help="What people call it.")
@click.option("--role", "roles", metavar="ROLE", multiple=True, required=True, help="What it may do; repeatable.")
@click.option(
    "--resource", "resources", metavar="NAME", multiple=True, help="Where; repeatable; default: the project."
)
def create(session: Session, *, display_name: str, roles: tuple[str, ...], resources: tuple[str, ...]) -> Shown:
    """Make a key, and print it: nobody can get it again."""
    body = {
        "displayName": display_name,
        "roles": [role_of(session, role) for role in roles],
        "resources": [resource_of(session, resource) for resource in resources],
    }
    made = session.api.call("POST", f"{session.project}/apiKeys", body)
    return Shown(data=made, fields={"name": made["name"], "key": made["keyString"]})


@calling(COMMANDS, "list", "broker auth api-keys list")
def list_(session: Session) -> Shown:
    """List the keys of a project, without what proves them."""
    found = session.api.all_of(f"{session.project}/apiKeys", "keys")
    rows = [
        [
            leaf(one["name"]),
            one.get("displayName", ""),
            ", ".join(one.get("roles", [])),
            ", ".join(map(leaf, one.get("resources", []))),
            short_time(one["createTime"]),
        ]
        for one in found
    ]
    columns = ("id", "name", "roles", "resources", "made")
    return Shown(
        data=found,
        columns=columns,
        rows=rows,
        whole=("id", "made"),
        minor=("made", "resources"),
        nothing="There is no API key.",
    )


@calling(COMMANDS, "show", "broker auth api-keys show $API_KEY")
@click.argument("key_id", metavar="ID")
def show(session: Session, *, key_id: str) -> Shown:
    """Show the key of this id, or name, without what proves it."""
    found = session.api.call("GET", full_name(key_id, "apiKeys", session.short_project))
    return Shown(data=found, fields=found)


@calling(COMMANDS, "delete", "broker auth api-keys delete $API_KEY")
@click.argument("key_id", metavar="ID")
@YES
def delete(session: Session, *, key_id: str, yes: bool) -> Shown:
    """Delete the key of this id, or name."""
    name = full_name(key_id, "apiKeys", session.short_project)
    confirm(f"Delete the API key {name}, for good?", yes=yes)
    return Shown(data=session.api.call("DELETE", name), line=f"Deleted the key {leaf(name)}.")
