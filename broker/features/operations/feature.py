"""Registers long-running operations: their calls, and their runner."""

from collections.abc import Callable
from functools import partial

from broker.api.permissions import Needs
from broker.features.feature import Feature
from broker.features.operations.operations import Operations
from broker.features.operations.rest import OperationCalls
from broker.features.operations.rows import delete_old_operations
from broker.features.operations.rpcs import make_rpcs
from broker.model.operation_verb import Verb


def register(operations: Operations, *, needed_to_start: Callable[[Verb], Needs | None], kept_days: int) -> Feature:
    """Registers the feature.

    `needed_to_start(verb)`: the permissions of the call that starts such an operation (None: there is no such
    call).
    """
    return Feature(
        rpcs=make_rpcs(OperationCalls(operations.service, needed_to_start)),
        workers={"operations": operations.runner},
        clean_ups=[partial(delete_old_operations, days=kept_days)],
        resource_changed=operations.notifications.changed,
    )
