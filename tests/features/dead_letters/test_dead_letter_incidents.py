"""What the log says of dead-letter policies lasts no longer than their subscriptions."""

from broker.features.dead_letters.dead_letter_incidents import DeadLetterIncidents
from broker.model.subscription import DeadLetterPolicy, Subscription
from broker.observability.state_changes import StateChanges

_SUBSCRIPTION = Subscription(
    subscription_id=1,
    name="projects/p/subscriptions/s",
    topic="projects/p/topics/t",
    dead_letter_policy=DeadLetterPolicy(dead_letter_topic="projects/q/topics/dead"),
)


def test_a_deleted_subscription_whose_dead_letters_were_denied_is_read_again_and_forgotten() -> None:
    incidents = DeadLetterIncidents(StateChanges())
    incidents.denied(_SUBSCRIPTION, "the service agent needs a role")
    assert incidents.is_interested(_SUBSCRIPTION.name)
    incidents.subscription_gone(_SUBSCRIPTION.name)
    assert not incidents.is_interested(_SUBSCRIPTION.name)
