"""The operations of one process, shared by the features that start long work."""

from broker.core.context.core import Core
from broker.core.publishing.preparation import Preparation
from broker.core.publishing.publish_rights import CheckPublisher
from broker.features.operations.operation_notifications import OperationNotifications
from broker.features.operations.runner import Kind, OperationRunner
from broker.features.operations.service import OperationService
from broker.features.operations.targets import Targets
from broker.model.operation_verb import Verb


class Operations:
    """The operations of one process.

    `service` starts operations and queries them; `runner` runs them, if the feature is registered.
    """

    def __init__(
        self, core: Core, preparation: Preparation, check_publisher: CheckPublisher, *, at_once: int
    ) -> None:
        """`at_once`: how many operations of a project may be under way."""
        self._kinds: dict[Verb, Kind] = {}
        self.notifications = OperationNotifications()
        self.service = OperationService(core, self.notifications, at_once=at_once)
        self.targets = Targets(core, preparation, check_publisher)
        self.runner = OperationRunner(core, self._kinds)
        self.notifications.wake_runner = self.runner.wake

    def add_kind(self, verb: Verb, kind: Kind) -> None:
        """Adds the kind that runs the operations of a verb, before the process begins to serve."""
        self._kinds[verb] = kind
