"""The interface through which a feature takes part when one of its fields of a topic or a subscription changes.

The model declares the field and its limits, because topics and subscriptions are stored, returned and compared as a
whole.  A feature registers the further checks and effects of a new value.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker.db.driver.database import ResourceConnection
from broker.model.errors import FailedPrecondition
from broker.model.names import leaf
from broker.model.subscription import Subscription
from broker.model.topic import Topic

Resource = TypeVar("Resource", Topic, Subscription)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceField(Generic[Resource]):
    """The validation by a feature when a resource is created, or an update names the field.

    `path`: the field in field masks.  `check` runs before the transaction of the change, and may take long; it
    raises InvalidArgument, Unavailable.  `resolve` runs in the transaction, and returns the resource as it will be
    stored, given the one that is stored now (None: it is created); it raises InvalidArgument, NotFound.
    """

    path: str
    check: Callable[[Resource], Awaitable[None]] | None = None
    resolve: Callable[[ResourceConnection, Resource, Resource | None], Awaitable[Resource]] | None = None


async def resolved(
    fields: Iterable[ResourceField[Resource]],
    connection: ResourceConnection,
    resource: Resource,
    current: Resource | None,
) -> Resource:
    """Return the resource as it will be stored.  Raises as `resolve` does."""
    for each in fields:
        if each.resolve is not None:
            resource = await each.resolve(connection, resource, current)
    return resource


def not_supported(path: str, name: str) -> FailedPrecondition:
    """The error for a field whose feature this broker does not have."""
    return FailedPrecondition(f"This broker does not support {path} (resource={leaf(name)}).")
