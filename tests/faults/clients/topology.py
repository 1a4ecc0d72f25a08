"""The topics and subscriptions of a run, and who receives from each."""

from dataclasses import dataclass, field
from typing import Any

from tests.faults.history import Subscription

Json = dict[str, Any]

TOPIC, LETTERS = "load", "load-letters"
ACK_DEADLINE_SECONDS = 10  # the shortest there is
MAX_ATTEMPTS = 5
RARE = {"kind": "rare"}
# How a push endpoint behaves; settling is healthy, too.
HEALTHY, FLAKY, SETTLING = "healthy", "flaky", "settling"


@dataclass(frozen=True, slots=True)
class Plan:
    """A subscription, and how many of each kind of receiver it has.  `sought`: the operator seeks in it."""

    terms: Subscription
    pullers: int = 0
    streams: int = 0
    endpoint: str = ""
    sought: bool = False
    fields: Json = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.terms.name

    def body(self, project: str, endpoint_url: str) -> Json:
        """What creates it."""
        terms = self.terms
        body: Json = {
            "topic": f"{project}/topics/{terms.topic}",
            "ackDeadlineSeconds": ACK_DEADLINE_SECONDS,
            "enableMessageOrdering": terms.ordered,
            "enableExactlyOnceDelivery": terms.exactly_once,
            **self.fields,
        }
        if terms.wanted:
            body["filter"] = " AND ".join(f'attributes.{name} = "{value}"' for name, value in terms.wanted.items())
        if terms.dead_letter_topic:
            topic = f"{project}/topics/{terms.dead_letter_topic}"
            body["deadLetterPolicy"] = {"deadLetterTopic": topic, "maxDeliveryAttempts": terms.max_attempts}
        if self.endpoint:
            body["pushConfig"] = {"pushEndpoint": f"{endpoint_url}/{self.endpoint}/{self.name}"}
        return body


_RETAINING = {"retainAckedMessages": True}
_DEAD = {"max_attempts": MAX_ATTEMPTS, "dead_letter_topic": LETTERS, "wanted": RARE}

PLANS = (
    Plan(Subscription("plain", TOPIC), pullers=2, streams=1),
    Plan(Subscription("sought", TOPIC), pullers=2, sought=True, fields=_RETAINING),
    Plan(Subscription("ordered-sought", TOPIC, ordered=True), pullers=1, sought=True, fields=_RETAINING),
    Plan(Subscription("ordered", TOPIC, ordered=True), pullers=2, streams=1),
    Plan(Subscription("exact", TOPIC, exactly_once=True), pullers=2, streams=1),
    Plan(Subscription("ordered-exact", TOPIC, ordered=True, exactly_once=True), pullers=1, streams=1),
    Plan(Subscription("dead", TOPIC, **_DEAD), pullers=2, streams=1),  # type: ignore[arg-type]
    Plan(Subscription("ordered-dead", TOPIC, ordered=True, **_DEAD), pullers=1),  # type: ignore[arg-type]
    Plan(Subscription("pushed", TOPIC), endpoint=HEALTHY),
    Plan(Subscription("ordered-pushed", TOPIC, ordered=True), endpoint=HEALTHY),
    Plan(Subscription("flaky", TOPIC, wanted=RARE), endpoint=FLAKY),
    Plan(Subscription("letters", LETTERS), pullers=1),
)
