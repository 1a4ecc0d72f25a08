"""Retractions and applications' own transactions, side by side with the model (J6, J7)."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from sqlalchemy import make_url

from broker.db.database_url import DEFAULT_SCHEMA
from broker.features.outbox.application_functions import grant
from tests.fixtures.application import bare_url, publish, settle
from tests.model.both import Both, message_json
from tests.model.model import Message, Subscription, Topic, Verdict
from tests.model.ordering import keyed
from tests.model.running_broker import RunningBroker


class Later(Both):
    """With what may still change of messages, and what applications do in the broker's PostgreSQL."""

    def __init__(self, broker: RunningBroker, project: str) -> None:
        super().__init__(broker, project)
        self._url = bare_url(broker.database_url)
        role = make_url(self._url).username or ""
        grant(self._url, schema=DEFAULT_SCHEMA, role=role, project=f"projects/{project}")

    # --- retractions -------------------------------------------------------------------------------------

    def retract(self, topic: str, choices: Sequence[int]) -> None:
        """Some of what may be; the same call again changes nothing."""
        found = self.model.topics.get(self._topic(topic))
        messages = self._chosen(found, choices) if found else []
        if not messages:
            return
        ids = [str(message.message_id) for message in messages]
        for first in (True, False):
            answer = self._expect("OK", "POST", f"{self._topic(topic)}:retract", {"messageIds": ids})
            outcomes = {each["messageId"]: each["outcome"] for each in answer["results"]}
            assert set(outcomes.values()) <= {"retracted" if first else "alreadyRetracted", "notRetained"}
            self._compare_told(messages, answer)
        for message in messages:
            self.model.retract(message)

    def replace(self, topic: str, choice: int) -> None:
        found = self.model.topics.get(self._topic(topic))
        messages = self._chosen(found, [choice]) if found else []
        if found is None or not messages:
            return
        [old], [text] = messages, self._texts(1)
        body = {"messageId": old.message_id, "message": message_json(text, {}, old.key)}
        code, answer = self._call("POST", f"{self._topic(topic)}:replace", body)
        if code == "FAILED_PRECONDITION":
            assert "not retained" in answer["message"], answer
            return
        assert code == "OK", answer
        assert (
            self._call("POST", f"{self._topic(topic)}:replace", body)[1]["replacementId"] == answer["replacementId"]
        )
        self.model.retract(old)
        self.model.publish(found, Message(text, {}, old.key, self.model.now, answer["replacementId"]))

    def _chosen(self, topic: Topic, choices: Sequence[int]) -> list[Message]:
        may_be = [message for message in topic.log if message.message_id and self._is_plain(topic, message)][::-1]
        return list(dict.fromkeys(may_be[choice % len(may_be)] for choice in choices)) if may_be else []

    def _is_plain(self, topic: Topic, message: Message) -> bool:
        """What it comes to is certain: no key waits for it, and nobody gives it up."""
        if message.retracted or message.doubtful:
            return False
        for subscription in self._subscriptions(topic):
            standing = subscription.standings.get(message)
            if keyed(subscription, message):
                of_key = [s for s in subscription.unacked() if s.message.key == message.key]
                if any(s.out or s.early or s.attempts or s.due > self.model.now for s in of_key):
                    return False
            elif standing and not standing.acked and subscription.dead_letter_topic and standing.attempts:
                return False
        return True

    def _compare_told(self, messages: Sequence[Message], answer: dict[str, Any]) -> None:
        """Nobody is told that a message was in time which somebody has just now."""
        reported = {
            each["subscription"]: set(each.get("neverHandedOut", ())) for each in answer.get("subscriptions", ())
        }
        for name, in_time in reported.items():
            subscription = self.model.subscriptions[name]
            for message in messages:
                standing = subscription.standings.get(message)
                out = standing is not None and standing.out and standing.due > self.model.now
                assert not (out and message.message_id in in_time), (name, message)

    def _subscriptions(self, topic: Topic) -> Iterator[Subscription]:
        return (each for each in self.model.subscriptions.values() if each.topic is topic)

    # --- transactions ------------------------------------------------------------------------------------

    def transact(
        self, topic: str, count: int, key: str, name: str, ack_ids: Sequence[str], *, commit: bool
    ) -> None:
        """An application publishes and acks; at its end the broker takes up what was committed."""
        found = self.model.topics.get(self._topic(topic))
        if found is None:
            return
        texts, subscription = self._texts(count), self.model.subscriptions.get(self._subscription(name))
        acked = self._sure(subscription, ack_ids) if subscription else []
        with psycopg.connect(self._url) as session:
            for text in texts:
                publish(session, json.dumps({"text": text}), None, key, topic=found.name)
            if subscription and acked:
                settle(session, subscription.name, *acked)
            self.broker.relay()
            if not commit:
                session.rollback()
        self.broker.relay()
        if not commit:
            return
        for text in texts:
            self.model.publish(found, Message(text, {}, key, self.model.now))
        for ack_id in acked if subscription else ():
            assert subscription is not None
            subscription.acknowledge(ack_id, self.model.now)

    def _sure(self, subscription: Subscription, ack_ids: Sequence[str]) -> list[str]:
        """Those whose ack counts for certain, also without the others."""
        sure = list(dict.fromkeys(ack_ids))
        for _ in range(2):
            verdicts = subscription.ack_verdicts(sure, self.model.now)
            sure = [ack_id for ack_id in sure if verdicts[ack_id] is Verdict.TAKES_EFFECT]
        return sure
