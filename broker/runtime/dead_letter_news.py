"""What the log says of dead-letter policies whose topic is missing: such messages are delivered without end."""

from broker.domain.subscription import Subscription
from broker.telemetry.log import fields_of
from broker.telemetry.state_changes import StateChanges

_KIND = "subscriptions without their dead-letter topic"


class DeadLetterNews:
    """Told of subscriptions as they are read."""

    def __init__(self, states: StateChanges) -> None:
        self._states = states

    def read(self, subscription: Subscription) -> None:
        """This is how it is now."""
        name, policy = subscription.name, subscription.dead_letter_policy
        if policy is None:
            self._states.forget(_KIND, name)
        elif subscription.dead_letter_topic_id:
            self._states.ends(_KIND, name, f"dead letters of {name} go to {policy.dead_letter_topic} again")
        else:
            why = f"there is no topic {policy.dead_letter_topic}; what fails is delivered again and again"
            fields = fields_of(dead_letter_topic=policy.dead_letter_topic)
            self._states.begins(_KIND, name, f"dead letters of {name} go nowhere", why, fields=fields)

    def is_told(self, name: str) -> bool:
        """Whether something was told of it that is not over."""
        return self._states.lasts(_KIND, name)

    def gone(self, name: str) -> None:
        """There is no such subscription any more."""
        self._states.forget(_KIND, name)
