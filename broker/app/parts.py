"""The parts of a process that features are built from."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from broker.api.gate import Gate
from broker.api.permissions import Needs
from broker.app.config import AppConfig
from broker.app.guard import Guard
from broker.app.messages import Messages
from broker.app.services import CoreServices
from broker.core.context.core import Core
from broker.core.process.next_due import NextDue
from broker.core.pushing.pusher import Pusher
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.features.operations.operations import Operations
from broker.model.operation_verb import Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of the core, in the order in which they are built.

    `replica_reads` and `query_turns`: connections and turns of calls that read much.  `operations`: long work that
    several features start, and that the feature of that name runs.  `needed_to_start(verb)`: what the call needs
    that starts such an operation (None: no feature with such a call is registered).  `policy_resources`: by kind,
    what gets a resource of it that may have a policy; those of features are added as they are registered.
    """

    config: AppConfig
    core: Core
    guard: Guard
    gate: Gate | None
    messages: Messages
    services: CoreServices
    pusher: Pusher
    next_due: NextDue
    replica_reads: ReplicaReads
    query_turns: ResourceTurns
    operations: Operations
    needed_to_start: Callable[[Verb], Needs | None]
    policy_resources: dict[str, Callable[[str], Awaitable[object]]]
