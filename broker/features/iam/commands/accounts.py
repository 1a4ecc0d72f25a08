"""`broker auth accounts`: the service accounts of a running broker."""

import click

from broker.client.calling import Session, calling
from broker.client.output import Shown
from broker.client.resource import Table

TABLE = Table(
    columns={
        "email": lambda a: a["email"],
        "name": lambda a: a.get("displayName", ""),
        "state": lambda a: "disabled" if a.get("disabled") else "enabled",
    }
)


@calling("create", "broker auth accounts create billing --display-name Billing")
@click.option("--display-name", metavar="TEXT", default="", help="What people call it.")
@click.option("--description", metavar="TEXT", default="", help="What it is for.")
@click.argument("account_id", metavar="ID")
def create(session: Session, *, display_name: str, description: str, account_id: str) -> Shown:
    """Make the account ID@PROJECT.iam.broker.internal; it may do nothing until it is given a role."""
    account = {"displayName": display_name, "description": description}
    body = {"accountId": account_id, "serviceAccount": account}
    made = session.api.call("POST", f"{session.project}/serviceAccounts", body)
    return TABLE.shown([made], data=made)
