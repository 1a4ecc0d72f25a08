"""What a process does when messages, resources, credentials or processes change.

Parts of the core report such changes, and are built before the parts that react to them.  This is the only place
where the former reach the latter: `connect` is called once all parts are built, before any of them runs.
"""

from collections.abc import Collection

from broker.app.guard import Guard
from broker.app.messages import Claiming
from broker.core.context.core import Core
from broker.core.pushing.pusher import Pusher
from broker.features.feature import Feature
from broker.features.operations.operation_notifications import is_operation


class Reactions:
    """The core calls the methods."""

    _core: Core
    _guard: Guard
    _claiming: Claiming
    _pusher: Pusher
    _features: Collection[Feature]

    def connect(
        self, core: Core, *, guard: Guard, claiming: Claiming, pusher: Pusher, features: Collection[Feature]
    ) -> None:
        self._core = core
        self._guard = guard
        self._claiming = claiming
        self._pusher = pusher
        self._features = features

    def messages_claimable(self, shard_id: int | None, subscription_id: int | None) -> None:
        """Messages may be claimed in a shard, or of a subscription; neither given: anywhere."""
        self._claiming.wake(shard_id, subscription_id)

    def resource_changed(self, name: str | None) -> None:
        """Reacts to a change of a topic, subscription, schema, operation or quota.

        None: any of them may have changed.
        """
        for feature in self._features:
            if feature.resource_changed is not None:
                feature.resource_changed(name)
        if name is not None and is_operation(name):
            return
        self._core.resources.drop(name)
        self._claiming.resource_changed(name)
        self._pusher.resource_changed(name)

    def access_changed(self) -> None:
        """Reacts to a change, or a possible one, of a credential or a policy."""
        if self._guard.access is not None:
            self._guard.access.version.changed()

    def outbox_written(self) -> None:
        """Reacts to the commit of an application that wrote messages or acks into the outbox."""
        for feature in self._features:
            if feature.outbox_committed is not None:
                feature.outbox_committed()

    async def poll_heads(self) -> None:
        """Looks for messages of other processes, while the database has no notifications."""
        await self._claiming.heads.run_once()

    def processes_changed(self) -> None:
        """Assigns push subscriptions anew after another process has joined or left."""
        self._pusher.resource_changed(None)

    def joining(self) -> None:
        """Claims in all shards, as this process has just joined.

        Other processes may not know it yet, and have not notified it of messages.
        """
        self._claiming.wake(None, None)
