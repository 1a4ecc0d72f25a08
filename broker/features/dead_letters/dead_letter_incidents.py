"""Incidents of dead-letter policies: the topic is missing, denied, or has no subscription."""

from broker.model.subscription import Subscription, unread_dead_letters
from broker.observability.log import fields_of
from broker.observability.state_changes import StateChanges

_MISSING = "subscriptions without their dead-letter topic"
_DENIED = "subscriptions that may not publish on their dead-letter topic"
_UNREAD = "subscriptions whose dead-letter topic has no subscription"
_KINDS = (_MISSING, _DENIED, _UNREAD)


class DeadLetterIncidents:
    """Reports incidents of dead-letter policies.  A SubscriptionListener; `states` has the state of
    all incidents.
    """

    def __init__(self, states: StateChanges) -> None:
        self._states = states

    def subscription_read(self, subscription: Subscription) -> None:
        """Reports whether the dead-letter topic exists and has a subscription."""
        name, policy = subscription.name, subscription.dead_letter_policy
        if policy is None:
            self.subscription_gone(name)
            return
        topic = policy.dead_letter_topic
        fields = fields_of(dead_letter_topic=topic)
        if subscription.dead_letter_topic_id:
            self._states.ends(_MISSING, name, f"dead letters of {name} go to {topic} again")
        else:
            why = f"there is no topic {topic}; what fails is delivered again and again"
            self._states.begins(_MISSING, name, f"dead letters of {name} go nowhere", why, fields=fields)
        why = unread_dead_letters(subscription)
        if why:
            self._states.begins(_UNREAD, name, f"nobody reads dead letters of {name}", why, fields=fields)
        else:
            self._states.ends(_UNREAD, name, f"{topic}, which gets dead letters of {name}, has a subscription")

    def denied(self, subscription: Subscription, why: str) -> None:
        """Reports that dead letters wait, because they may not be published on their topic."""
        name, policy = subscription.name, subscription.dead_letter_policy
        assert policy is not None
        fields = fields_of(dead_letter_topic=policy.dead_letter_topic)
        self._states.begins(_DENIED, name, f"dead letters of {name} wait", why, fields=fields)

    def allowed(self, subscription: Subscription) -> None:
        """Ends the incident of `denied`."""
        self._states.ends(_DENIED, subscription.name, f"dead letters of {subscription.name} are forwarded again")

    def is_interested(self, name: str) -> bool:
        """Returns whether the subscription has an incident that has not ended."""
        return any(self._states.lasts(kind, name) for kind in _KINDS)

    def subscription_gone(self, name: str) -> None:
        """Forgets the incidents of a subscription that was deleted or has no dead-letter policy."""
        for kind in _KINDS:
            self._states.forget(kind, name)
