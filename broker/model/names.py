"""Resource names: projects/{project}/{collection}/{id}.

The rules apply to the names of new resources.  Existing resources are found by any name, so a name is checked only
if no resource has it: `not_found`.
"""

import re
from functools import lru_cache
from secrets import token_hex

from broker.model.errors import BrokerError, InvalidArgument, NotFound

# Google's rule: starts with a letter, then letters, digits and - _ . ~ + %, 3 to 255 characters, not "goog…"
# in any letter case (production refuses "GOOG" too).
_ID = re.compile(r"(?!(?i:goog))[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}")
ID_RULE = (
    "An id has 3 to 255 letters, digits and - _ . ~ + % (ASCII only), begins with a letter, and does not begin "
    'with "goog".'
)

# Ids, numbers, domain-scoped ids ("example.com:shop"), and more: Google's own rule (6 to 30 characters) would
# refuse "demo", which people write where no project needs to exist.
_PROJECT = re.compile(r"[A-Za-z0-9_.:~+%-]{1,63}")
PROJECT_RULE = "A project has 1 to 63 letters, digits and _ . : ~ + % - (ASCII only)."

_SHOWN = 300  # characters of a refused name in an error; every name that follows the rules is shown in full
_SINGULAR = {
    "topics": "topic",
    "subscriptions": "subscription",
    "snapshots": "snapshot",
    "schemas": "schema",
    "schedules": "schedule",
    "linkTemplates": "linkTemplate",
    "maskingRules": "maskingRule",
    "messageTemplates": "messageTemplate",
    "savedViews": "savedView",
}


def check_name(name: str, collection: str) -> None:
    """Raises InvalidArgument unless `name` can be given to a new resource of `collection` ("topics", …)."""
    refusal = _refusal(name, collection)
    if refusal is not None:
        raise refusal


def check_shape(name: str, collection: str = "") -> None:
    """Raises InvalidArgument unless `name` could be that of a resource of `collection`, or of a project.

    Less than check_name: what exists may have been named when there were fewer rules.
    """
    parts = name.split("/")
    if (
        "\0" in name  # PostgreSQL's text cannot hold it
        or not all(parts)
        or parts[0] != "projects"
        or len(parts) != (4 if collection else 2)
        or (collection and parts[2] != collection)
    ):
        raise _invalid(name, collection, f"It must be {_pattern(collection)}.")


def check_project(name: str) -> None:
    """Raises InvalidArgument unless `name` is that of a project: "projects/{project}"."""
    check_shape(name)
    if not _PROJECT.fullmatch(leaf(name)):
        raise _invalid(name, "", PROJECT_RULE)


def not_found(what: str, name: str, collection: str) -> BrokerError:
    """Returns the error for a missing resource.

    It is NotFound, or InvalidArgument if nothing could be created with its name: clients that create missing
    resources must not be told that it could be.  `what` begins the message.
    """
    return _refusal(name, collection) or NotFound(f"{what} (resource={leaf(name)}).")


def random_name(*, sibling: str, collection: str) -> str:
    """A name that nobody chose, in the project of another resource."""
    return "/".join((*sibling.split("/")[:2], collection, f"{collection[:4]}-{token_hex(12)}"))


@lru_cache(10_000)
def project_of(name: str) -> str:
    """`projects/p` of `projects/p/topics/t`."""
    return name[: name.index("/", len("projects/"))]


def project_within(path: str) -> str:
    """The same of whatever a caller names, be it a project or nothing of the kind."""
    return "/".join(path.split("/", 2)[:2])


def leaf(name: str) -> str:
    """The id at the end of a resource name, as error messages give it."""
    return name.rpartition("/")[2]


def _refusal(name: str, collection: str) -> InvalidArgument | None:
    try:
        check_shape(name, collection)
    except InvalidArgument as refusal:
        return refusal
    _, project, _, resource_id = name.split("/")
    if not _PROJECT.fullmatch(project):
        return _invalid(name, collection, PROJECT_RULE)
    return None if _ID.fullmatch(resource_id) else _invalid(name, collection, ID_RULE)


def _invalid(name: str, collection: str, rule: str) -> InvalidArgument:
    shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
    return InvalidArgument(f"Invalid [{collection or 'projects'}] name: (name={shown}). {rule}")


def _pattern(collection: str) -> str:
    return f"projects/{{project}}/{collection}/{{{_SINGULAR[collection]}}}" if collection else "projects/{project}"
