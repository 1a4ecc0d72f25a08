"""The topics and subscriptions of a run, and who receives from each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.faults.history import Subscription

Json = dict[str, Any]

TOPIC, DEAD_LETTERS = "load", "load-letters"
SHAPED, EVENTS = "shaped", "load-events"  # one with a schema, and the one that operators are told by
COPIES, PILE = "load-copies", "load-pile"  # what is copied; dead letters that nobody consumes, but that come back
ACK_DEADLINE_SECONDS = 10  # the shortest there is
MAX_ATTEMPTS = 5
RARE = {"kind": "rare"}
# How a push endpoint behaves; settling is healthy, too.
HEALTHY, FLAKY, SETTLING = "healthy", "flaky", "settling"


@dataclass(frozen=True, slots=True)
class Plan:
    """A subscription, and how many of each kind of receiver it has.  `sought`: the operator seeks in it;
    `paused`: it is pushed to nobody; `purged`: now and then.
    """

    terms: Subscription
    pullers: int = 0
    streams: int = 0
    endpoint: str = ""
    sought: bool = False
    paused: bool = False
    purged: bool = False
    alerts: Json = field(default_factory=dict)
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
        if terms.wanted and not terms.copies:
            body["filter"] = filter_of(terms.wanted)
        if terms.dead_letter_topic:
            topic = f"{project}/topics/{terms.dead_letter_topic}"
            body["deadLetterPolicy"] = {"deadLetterTopic": topic, "maxDeliveryAttempts": terms.max_attempts}
        extensions = {"alerts": self.alerts} if self.alerts else {}
        if terms.journal:
            extensions["journal"] = {"mode": terms.journal, "sample": terms.journal_share}
        if extensions:
            body["extensions"] = extensions
        if self.endpoint:
            body["pushConfig"] = {"pushEndpoint": f"{endpoint_url}/{self.endpoint}/{self.name}"}
        return body


def filter_of(wanted: Mapping[str, str]) -> str:
    return " AND ".join(f'attributes.{name} = "{value}"' for name, value in wanted.items())


_RETAINING = {"retainAckedMessages": True}
_URGENT = {"extensions": {"push": {"urgent": True}}}
_DEAD = {"max_attempts": MAX_ATTEMPTS, "dead_letter_topic": DEAD_LETTERS, "wanted": RARE, "journal": "ALL"}
_EXACT = _DEAD | {"exactly_once": True, "journal": "FAILURES"}
_REDRIVEN = _DEAD | {"dead_letter_topic": PILE, "exactly_once": True, "redriven": True}
_AGE, _BACKLOG = {"age": "10s"}, {"backlog": 30}  # one for each: both end by one kind of event

PLANS = (
    Plan(Subscription("plain", TOPIC), pullers=2, streams=1, alerts=_BACKLOG),
    Plan(Subscription("sought", TOPIC), pullers=2, sought=True, fields=_RETAINING),
    Plan(Subscription("ordered-sought", TOPIC, ordered=True), pullers=1, sought=True, fields=_RETAINING),
    Plan(Subscription("ordered", TOPIC, ordered=True), pullers=2, streams=1, alerts=_AGE),
    Plan(Subscription("exact", TOPIC, exactly_once=True, journal="ALL"), pullers=2, streams=1),
    Plan(Subscription("ordered-exact", TOPIC, ordered=True, exactly_once=True), pullers=1, streams=1),
    Plan(Subscription("dead", TOPIC, **_DEAD), pullers=2, streams=1),  # type: ignore[arg-type]
    Plan(Subscription("exact-dead", TOPIC, **_EXACT), pullers=1, streams=1),  # type: ignore[arg-type]
    Plan(Subscription("ordered-dead", TOPIC, ordered=True, **_DEAD), pullers=1),  # type: ignore[arg-type]
    Plan(Subscription("pushed", TOPIC, journal="ALL", journal_share=0.5), endpoint=HEALTHY),
    Plan(Subscription("ordered-pushed", TOPIC, ordered=True), endpoint=HEALTHY, fields=_URGENT),
    Plan(Subscription("flaky", TOPIC, wanted=RARE, journal="ALL"), endpoint=FLAKY),
    Plan(Subscription("letters", DEAD_LETTERS), pullers=1),
    Plan(Subscription("redriven", TOPIC, **_REDRIVEN), pullers=1, streams=1),  # type: ignore[arg-type]
    Plan(Subscription("ordered-redriven", TOPIC, ordered=True, **_REDRIVEN), pullers=1),  # type: ignore[arg-type]
    Plan(Subscription("pile", PILE)),
    Plan(Subscription("purged", TOPIC), pullers=1, purged=True),
    Plan(Subscription("copied", COPIES, ordered=True, wanted=RARE, copies=TOPIC), pullers=1),
    Plan(Subscription("shaped", SHAPED, ordered=True), pullers=1),
    Plan(Subscription("events", EVENTS, of_events=True), pullers=1, alerts={"age": "10s", "backlog": 1}),
    # Much is the matter with it, and nobody is told.
    Plan(Subscription("events-paused", EVENTS, of_events=True), endpoint=HEALTHY, paused=True, alerts=_AGE),
)
