"""`broker auth api-keys`: the API keys of a running broker."""

import click

from broker.cli.auth.accounts import project_name
from broker.cli.auth.api import Api
from broker.cli.auth.calling import Shown, calling, texts
from broker.cli.command_line import Group

COMMANDS = Group("api-keys", help="API keys, for what has no library.")
_FIELDS = ("name", "displayName", "roles", "resources", "createTime")


@calling(COMMANDS, "create")
@click.option("--project", metavar="PROJECT", required=True, help="The project that the key is of.")
@click.option("--display-name", metavar="TEXT", default="", help="What people call it.")
@click.option("--role", "roles", metavar="ROLE", multiple=True, required=True, help="What it may do; repeatable.")
@click.option(
    "--resource", "resources", metavar="NAME", multiple=True, help="Where; repeatable; default: the project."
)
def create(
    api: Api, *, project: str, display_name: str, roles: tuple[str, ...], resources: tuple[str, ...]
) -> Shown:
    """Make a key, and print it: nobody can get it again."""
    body = {"displayName": display_name, "roles": roles, "resources": resources}
    made = api.call("POST", f"{project_name(project)}/apiKeys", body)
    return Shown(made, ("name", "keyString"), texts([made], "name", "keyString"))


@calling(COMMANDS, "list")
@click.option("--project", metavar="PROJECT", required=True, help="The project that the keys are of.")
def list_(api: Api, *, project: str) -> Shown:
    """List the keys of a project, without what proves them."""
    found = api.all_of(f"{project_name(project)}/apiKeys", "keys")
    return Shown(found, _FIELDS, texts(found, *_FIELDS))


@calling(COMMANDS, "delete")
@click.argument("name")
def delete(api: Api, *, name: str) -> Shown:
    """Delete the key of this name, as `list` has it."""
    return Shown(api.call("DELETE", name), line=f"Deleted {name}.")
