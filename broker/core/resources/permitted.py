"""Filters resources by the permissions of a caller; those without permission are left out of the result."""

from collections.abc import Awaitable, Callable

from broker.model.errors import PermissionDenied

# Parameter: the name of a resource.  Raises PermissionDenied, Unavailable.
AskPermission = Callable[[str], Awaitable[None]]


async def is_permitted(ask: AskPermission, name: str) -> bool:
    """Whether `ask` permits the caller to do what it is about with this resource.  Raises Unavailable."""
    try:
        await ask(name)
    except PermissionDenied:
        return False
    return True
