"""Logs the incidents of push endpoints: failures with their cause, recoveries, and pauses.

An endpoint is identified by its origin, because the path and query of a webhook's URL often contain a secret.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable
from datetime import datetime, timedelta

from broker.core.catalog.resource_cache import ResourceCache
from broker.core.process.failures import report_failure
from broker.core.pushing.client.target import shown_origin
from broker.core.pushing.endpoint import Endpoint
from broker.core.pushing.endpoint_failure import describe_failing_message, describe_run
from broker.fairness.shared_capacity import Over
from broker.model.pause import is_withheld
from broker.model.push_state import FailingMessage, FailureRun
from broker.model.subscription import Subscription
from broker.observability.log import fields_of
from broker.observability.state_changes import StateChanges

_FAILING, _FAILING_MESSAGE = "push endpoints", "messages that endpoints do not take"
_PAUSED = "paused push subscriptions"
_NO_SLOT = "push subscriptions that wait for slots"
_HELD = "push subscriptions without their keys"
_CLAIMS = "push subscriptions that cannot be read"

logger = logging.getLogger(__name__)


class EndpointIncidents:
    """Reports incidents of the subscriptions that this process delivers to."""

    def __init__(
        self, states: StateChanges, resources: ResourceCache, *, excused: Callable[[], bool] = lambda: False
    ) -> None:
        """`resources` tells its listeners of the subscriptions, too, which no call may read.

        `excused()`: whether claims fail because the database is away, which has been reported.
        """
        self._states = states
        self._excused = excused
        self._resources = resources
        self._paused: set[str] = set()
        self._held: set[str] = set()

    def breaker_changed(self, endpoint: Endpoint) -> None:
        """Logs the state of the circuit breaker; whether the endpoint fails is reported by time."""
        logger.debug("%s: the circuit breaker is %s", _pushes(endpoint), endpoint.health.breaker)

    def failing(self, endpoint: Endpoint, run: FailureRun, retry_at: datetime | None, *, lasted: timedelta) -> None:
        """Reports that the endpoint fails; the reminder has the newest failure."""
        name, what = endpoint.subscription.name, f"{_pushes(endpoint)} fail"
        why, fields = describe_run(run, retry_at), fields_of(name, status=run.status)
        self._states.begins(_FAILING, name, what, why, lasted=lasted.total_seconds(), fields=fields)

    def recovered(self, endpoint: Endpoint) -> None:
        """Ends the report of a failing endpoint, which has accepted a message."""
        self._states.ends(_FAILING, endpoint.subscription.name, f"{_pushes(endpoint)} work again")

    def nothing_left(self, endpoint: Endpoint) -> None:
        """Ends the report of a failing endpoint, for which no message is left."""
        what = f"{_pushes(endpoint)} fail no longer: nothing is left to push"
        self._states.ends(_FAILING, endpoint.subscription.name, what)

    def replaced(self, endpoint: Endpoint, by: Subscription) -> None:
        """Ends the report of a failing endpoint, since the subscription is pushed to another one from now on."""
        origin = shown_origin(by.push_config.endpoint)
        what = f"{_pushes(endpoint)} fail no longer: they go to {origin} now"
        self._states.ends(_FAILING, endpoint.subscription.name, what)

    def message_failing(self, endpoint: Endpoint, message: FailingMessage, *, lasted: timedelta) -> None:
        """Reports a message that keeps failing while others are delivered."""
        what = f"pushes of message {message.message_id} of {endpoint.subscription.name} fail"
        name, why = _message_name(endpoint, message.message_id), describe_failing_message(message)
        fields = fields_of(endpoint.subscription.name, message_id=message.message_id, status=message.status)
        self._states.begins(_FAILING_MESSAGE, name, what, why, lasted=lasted.total_seconds(), fields=fields)

    def messages_delivered(self, endpoint: Endpoint, message_ids: Iterable[str]) -> None:
        """Messages that were reported as failing are delivered."""
        for message_id in message_ids:
            name = _message_name(endpoint, message_id)
            what = f"message {message_id} of {endpoint.subscription.name} is delivered"
            self._states.ends(_FAILING_MESSAGE, name, what)

    def messages_gone(self, endpoint: Endpoint, message_ids: Iterable[str]) -> None:
        """Messages that were reported as failing are not tried any more, and were not delivered."""
        for message_id in message_ids:
            name = _message_name(endpoint, message_id)
            what = f"message {message_id} of {endpoint.subscription.name} is gone, and is not pushed any more"
            self._states.ends(_FAILING_MESSAGE, name, what)

    def messages_given_up(self, endpoint: Endpoint, message_ids: Iterable[str]) -> None:
        """Messages that were reported as failing become dead letters, which is reported elsewhere."""
        for message_id in message_ids:
            self._states.forget(_FAILING_MESSAGE, _message_name(endpoint, message_id))

    def claim_failed(self, endpoint: Endpoint, error: BaseException) -> None:
        """Messages for it could not be taken from the log; that is tried again."""
        now = asyncio.get_running_loop().time()
        if self._excused():
            endpoint.claims_fail_since = None
            return
        if endpoint.claims_fail_since is None:
            endpoint.claims_fail_since = now
        name = endpoint.subscription.name
        what = f"messages of {name} cannot be taken from the log, and are not pushed; tried again every second"
        report_failure(self._states, _CLAIMS, name, what, error, lasted=now - endpoint.claims_fail_since)

    def claimed(self, endpoint: Endpoint) -> None:
        """Ends the condition that messages of the endpoint cannot be claimed."""
        if endpoint.claims_fail_since is not None:
            endpoint.claims_fail_since = None
            name = endpoint.subscription.name
            self._states.ends(_CLAIMS, name, f"messages of {name} are taken from the log again")

    def waits_for_slots(self, endpoint: Endpoint, seconds: float) -> None:
        """Begins the condition that others have had the slots that its requests need, for so many seconds."""
        name, over = endpoint.subscription.name, endpoint.waits_because
        assert over is not None
        why = f"{waits_for(endpoint, over)}; endpoints that hang or are slow hold them"
        self._states.begins(_NO_SLOT, name, f"pushes of {name} wait for slots", why, lasted=seconds)

    def has_slots(self, endpoint: Endpoint) -> None:
        """Ends the condition that the endpoint waits for slots."""
        self._states.ends(
            _NO_SLOT, endpoint.subscription.name, f"pushes of {endpoint.subscription.name} have slots"
        )

    def removed(self, endpoint: Endpoint) -> None:
        """Ends the conditions of an endpoint that was removed here.

        Another process has it, it is paused or deleted, or it is about to be created anew.
        """
        self._states.forget(_FAILING, endpoint.subscription.name)
        self._states.forget(_CLAIMS, endpoint.subscription.name)
        self._states.forget(_NO_SLOT, endpoint.subscription.name)
        self.messages_given_up(endpoint, (message.message_id for message in endpoint.failing.failing_messages))

    def read(self, subscription: Subscription) -> None:
        """Records the present state of a subscription, and logs a change of its pause."""
        name, pause = subscription.name, subscription.pause
        self._resources.report_read(subscription)
        if pause is not None:
            self._paused.add(name)
            until = "until they are allowed" if is_withheld(pause.reason) else "until resumed"
            self._states.begins(_PAUSED, name, f"pushes of {name} are paused {until}", pause.why)
        elif name in self._paused:
            self._paused.remove(name)
            self._states.ends(_PAUSED, name, f"pushes of {name} are resumed")

    def held(self, subscription: Subscription, why: str) -> None:
        """Logs that requests of a subscription cannot be signed, and why; "": they can."""
        name = subscription.name
        if why:
            self._held.add(name)
            what = f"pushes of {name} wait until what signs them can be decrypted"
            self._states.begins(_HELD, name, what, why, level=logging.ERROR)
        elif name in self._held:
            self._held.remove(name)
            self._states.ends(_HELD, name, f"pushes of {name} are signed again")

    def not_ours(self, name: str, *, pulled: bool = False) -> None:
        """Forgets a subscription that is deleted, is another process's, or is `pulled`.

        A pulled one is reported by any process.
        """
        self._paused.discard(name)
        self._states.forget(_PAUSED, name)
        self._held.discard(name)
        self._states.forget(_HELD, name)
        if not pulled:
            self._resources.report_gone(name)

    def all_of_ours(self, names: Container[str]) -> None:
        """Forgets all other subscriptions: these are all of this process."""
        for name in [name for name in self._paused | self._held if name not in names]:
            self.not_ours(name)


def _pushes(endpoint: Endpoint) -> str:
    return f"pushes of {endpoint.subscription.name} to {shown_origin(endpoint.subscription.push_config.endpoint)}"


def _message_name(endpoint: Endpoint, message_id: str) -> str:
    return f"{endpoint.subscription.name}/messages/{message_id}"


def waits_for(endpoint: Endpoint, over: Over) -> str:
    """Describes the holders of the slots that an endpoint waits for.

    No other project is named, so anybody may read it.
    """
    match over.path:
        case ():
            whose = "all together have"
        case (*_, last) if last == endpoint.subscription_id:
            whose = "it has"
        case (project,) if project == endpoint.project:
            whose = f"{project} has"
        case (project, _) if project == endpoint.project:
            whose = f"subscriptions of {project} that fail, are slow or are new have"
        case _:
            whose = "subscriptions that fail, are slow or are new have"
    return f"{whose} {over.held:,} requests open of {over.most:,}"
