"""`broker auth api-keys`: the API keys of a running broker."""

import click

from broker.client.calling import Session, calling
from broker.client.output import Shown
from broker.features.iam.commands.names import resource_of, role_of


@calling("create", "broker auth api-keys create --role subscriber --resource topics/orders")
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
