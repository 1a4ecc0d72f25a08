"""`broker quota`."""

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.command_line import Group, guess
from broker.client.output import Shown
from broker.client.stop import Misuse

_COLUMNS = ("quota", "usage", "limit", "unit", "principal")


@calling("show", "broker quota show")
def show(session: Session) -> Shown:
    """Show limits and usage of a project, and of the principals that use most."""
    return _shown(session.api.call("GET", f"{session.project}/quotas"))


@calling(
    "set",
    "broker quota set publishMessages=100000 topics=500",
    "broker quota set publishMessages=none --principals",
    "broker quota set publishMessages=default topics=default",
)
@click.argument("limits", metavar="QUOTA=LIMIT...", nargs=-1, required=True)
@click.option("--principals", is_flag=True, help="Of each principal in the project.")
def set_(session: Session, *, limits: tuple[str, ...], principals: bool) -> Shown:
    """Set limits: a number, none for no limit, or default for the broker's setting."""
    path = f"{session.project}/quotas"
    known = [one["quota"] for one in session.api.call("GET", path)["quotas"]]
    field = "principalLimits" if principals else "limits"
    body = {field: dict(_limit(given, known) for given in limits)}
    return _shown(session.api.call("PATCH", path, body))


def _limit(given: str, known: list[str]) -> tuple[str, int | None]:
    """Raises Misuse."""
    name, sign, text = given.partition("=")
    if not sign or name not in known:
        raise Misuse(f"{given!r} must be QUOTA=LIMIT, with {', '.join(known)}{guess(name, known)}")
    if text in ("none", "default"):
        return name, -1 if text == "none" else None
    if not (text.isascii() and text.isdigit()):
        raise Misuse(f"{name}={text} must be a whole number, none or default")
    return name, int(text)


def _shown(found: Json) -> Shown:
    rows = [
        [one["quota"], f"{one['usage']:,.10g}", _said(one), one["unit"], one.get("principal", "")]
        for one in (*found["quotas"], *found["principalQuotas"])
    ]
    return Shown(data=found, columns=_COLUMNS, rows=rows, whole=_COLUMNS[:3])


def _said(one: Json) -> str:
    return f"{one['limit']:,}" if "limit" in one else "none"


COMMANDS = Group(
    "quota",
    help="Quotas: what a project and each principal in it may use; these need this broker.",
    commands=[show, set_],
)
