"""`broker share`: links to the pushes of a subscription, for people without a credential."""

import click

from broker.client.calling import Session, calling
from broker.client.command_line import Group
from broker.client.output import Shown
from broker.client.words import duration_text, leaf, short_time

_subscription = click.argument("subscription")


@calling(
    "create",
    "broker share create hook --ttl 7d",
    "broker share create hook --permit resend --permit recover",
)
@_subscription
@click.option("--ttl", metavar="DURATION", help="How long it works, at most 30d; default: 7d.")
@click.option(
    "--permit",
    "permissions",
    type=click.Choice(["resend", "recover"]),
    multiple=True,
    help="What the holder may do besides looking; repeatable.",
)
def create(session: Session, *, subscription: str, ttl: str | None, permissions: tuple[str, ...]) -> Shown:
    """Make a link to the pushes of a subscription, and print it: nobody can get it again."""
    body = {
        "permissions": ["VIEW_PUSH_ATTEMPTS", *(one.upper() for one in permissions)],
        **({"ttl": duration_text(ttl, "--ttl")} if ttl else {}),
    }
    made = session.api.call("POST", f"{session.subscription(subscription)}:createShareLink", body)
    link = session.api.url + made["path"]
    return Shown(data=made | {"uri": link}, script=f"{link}\n")


@calling("list", "broker share list hook")
@_subscription
def list_(session: Session, *, subscription: str) -> Shown:
    """List the links of a subscription that have not expired."""
    found = session.api.all_of(f"{session.subscription(subscription)}/shareLinks", "shareLinks")
    columns = ("link", "expires", "permissions", "creator")
    rows = [
        [
            leaf(one["name"]),
            short_time(one["expireTime"]),
            ", ".join(permission.lower() for permission in one["permissions"]),
            one["creator"],
        ]
        for one in found
    ]
    return Shown(
        data=found, columns=columns, rows=rows, whole=columns[:2], minor=("creator",), nothing="There is no link."
    )


@calling("delete", "broker share delete hook $LINK")
@_subscription
@click.argument("link")
def delete(session: Session, *, subscription: str, link: str) -> Shown:
    """End a link: it opens no page any more."""
    name = f"{session.subscription(subscription)}/shareLinks/{leaf(link)}"
    return Shown(data=session.api.call("DELETE", name), line=f"Deleted the link {leaf(link)}.")


COMMANDS = Group(
    "share",
    help="Share links: the pushes of a subscription, for the owner of its endpoint; these need this broker.",
    commands=[create, list_, delete],
)
