"""Resource names: projects/{project}/{collection}/{id}."""

import re
from secrets import token_hex

from broker.domain.errors import InvalidArgument

# Google's rule: starts with a letter, then letters, digits and - _ . ~ + %, 3 to 255 characters, not "goog…"
# in any letter case (production refuses "GOOG" too).
_ID = re.compile(r"(?!(?i:goog))[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}")


def check_name(name: str, collection: str) -> None:
    """Raises InvalidArgument unless `name` is a full resource name of `collection` ("topics", …)."""
    parts = name.split("/")
    if (
        len(parts) != 4
        or parts[0] != "projects"
        or not parts[1]
        or parts[2] != collection
        or not _ID.fullmatch(parts[3])
        or not name.isprintable()
    ):
        raise InvalidArgument(f"Invalid [{collection}] name: (name={name})")


def check_shape(name: str, collection: str = "") -> None:
    """Raises InvalidArgument unless `name` could be that of a resource of `collection`, or of a project.

    Less than check_name: what has such a name and cannot exist is simply not found.
    """
    parts = name.split("/")
    wanted = 4 if collection else 2
    if len(parts) != wanted or parts[0] != "projects" or not all(parts) or "\0" in name:
        raise InvalidArgument(f"Invalid [{collection or 'projects'}] name: (name={name})")
    if collection and parts[2] != collection:
        raise InvalidArgument(f"Invalid [{collection}] name: (name={name})")


def random_name(*, beside: str, collection: str) -> str:
    """A name that nobody chose, in the project of another resource."""
    return "/".join((*beside.split("/")[:2], collection, f"{collection[:4]}-{token_hex(12)}"))


def leaf(name: str) -> str:
    """The id at the end of a resource name, as error messages give it."""
    return name.rpartition("/")[2]
