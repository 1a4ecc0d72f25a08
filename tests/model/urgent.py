"""What levels of urgency promise, in plain Python, beside the broker: a machine of its own, with a topic that has
nothing but them, times to live and messages that are withdrawn (docs/decisions/0052).

A message is there or not, as in model.py.  Without an age and weights what comes is of the most urgent level that
there is anything of.  With an age it may be of another one where something has waited so long: at most once, one
level after the other, before what is most urgent has a turn; and it is so soon.  With weights it may be of any
level that there is anything of.
"""

import base64
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.model.running_broker import RunningBroker

Json = dict[str, Any]

LEAST = 9  # of what says no level
AGE = timedelta(seconds=60)
ACK_DEADLINE = timedelta(seconds=10)
STRICT: Json = {"priorities": 3}
AGED: Json = {"priorities": {"levels": 3, "age": "60s"}}
WEIGHED: Json = {"priorities": {"levels": 3, "weights": [4, 2, 1]}}
_PATIENCE = 8  # pulls, within which what is old has come: twice the levels, and two

levels = st.sampled_from([0, 0, 1, LEAST, LEAST])
choices = st.lists(st.integers(0, 20), min_size=1, max_size=4)


@dataclass(eq=False)
class Message:
    """`ready`: when it may be handed out; `since`: when it began to wait; `ack_id`: under which it is out."""

    number: int
    level: int
    message_id: str
    ready: datetime
    published: datetime
    until: datetime | None
    ack_id: str = ""
    acked: bool = False
    retracted: bool = False

    def __repr__(self) -> str:
        return f"m{self.number} of {self.level}"

    def waits(self, now: datetime) -> bool:
        """For the broker it may, though nobody gets it."""
        return not self.acked and self.ready <= now

    def is_there(self, now: datetime) -> bool:
        return self.waits(now) and not self.retracted and (self.until is None or now < self.until)

    def is_out(self, now: datetime) -> bool:
        return bool(self.ack_id) and not self.acked and not self.retracted and now < self.ready


class Urgency(RuleBasedStateMachine):
    """`broker` is shared; each run works in a project of its own."""

    broker: RunningBroker
    number = 0

    @initialize(said=st.sampled_from([STRICT, AGED, WEIGHED]), exact=st.booleans())
    def begin(self, said: Json, exact: bool) -> None:
        Urgency.number += 1
        self.project = f"projects/urgent-{Urgency.number}"
        self.topic, self.subscription = f"{self.project}/topics/topic", f"{self.project}/subscriptions/sub"
        self.said = said
        self.messages: list[Message] = []
        self.passed: set[int] = set()  # levels that came before what was more urgent, since that came
        self.late = dict.fromkeys((0, 1, LEAST), 0)  # how many pulls each has been old for, without a turn
        self.snapshot: tuple[int, set[int]] | None = None  # how many messages there were, and those that were acked
        self.sought = self.broker.now
        self._call("PUT", self.topic, {"extensions": said | {"expiry": True}})
        self._call(
            "PUT",
            self.subscription,
            {
                "topic": self.topic,
                "retainAckedMessages": True,
                "ackDeadlineSeconds": 10,
                "enableExactlyOnceDelivery": exact,
            },
        )

    def teardown(self) -> None:
        """All of it comes, the most urgent first, if that is what is promised."""
        if not hasattr(self, "late"):
            return
        self.broker.move_time(ACK_DEADLINE)
        while any(m.is_there(self.now) for m in self.messages):
            self.pull(1000)
            self._acknowledge([m for m in self.messages if m.is_out(self.now)])
        for path in (self.subscription, self.topic):
            self._call("DELETE", path)

    def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        response = self.broker.client.request(method, f"/v1/{path}", json=body)
        answer: Json = response.json()
        assert response.status_code == 200, answer
        return answer

    @property
    def now(self) -> datetime:
        return self.broker.now

    @rule(of=st.lists(levels, min_size=1, max_size=6), ttl=st.sampled_from([None, None, None, 5, 61]))
    def publish(self, of: list[int], ttl: int | None) -> None:
        first = len(self.messages)
        body = []
        for number, level in enumerate(of, first):
            attributes = {} if level == LEAST else {"broker-priority": str(level)}
            if ttl is not None:
                attributes["broker-ttl"] = f"{ttl}s"
            body.append({"data": base64.b64encode(str(number).encode()).decode(), "attributes": attributes})
        ids = self._call("POST", f"{self.topic}:publish", {"messages": body})["messageIds"]
        until = None if ttl is None else self.now + timedelta(seconds=ttl)
        for number, (level, id_) in enumerate(zip(of, ids, strict=True), first):
            self.messages.append(Message(number, level, id_, self.now, self.now, until))

    @rule(most=st.sampled_from([1, 1, 2, 5]))
    def pull(self, most: int) -> None:
        there = [m for m in self.messages if m.is_there(self.now)]
        body = {"maxMessages": most, "returnImmediately": True}
        received = self._call("POST", f"{self.subscription}:pull", body).get("receivedMessages", [])
        assert bool(received) == bool(there), f"{len(received)} of {there}"
        if not received:
            return
        got = [self.messages[int(base64.b64decode(each["message"]["data"]))] for each in received]
        assert len(got) <= most
        assert len({*got}) == len(got)
        assert {*got} <= {*there}, f"{got}, and there was {there}"
        assert len({m.level for m in got}) == 1, f"{got} are of several levels"
        assert [m.message_id for m in got] == [each["message"]["messageId"] for each in received]
        self._compare_level(got[0].level, there)
        for message, each in zip(got, received, strict=True):
            message.ack_id, message.ready = each["ackId"], self.now + ACK_DEADLINE

    @rule()
    def pull_on(self) -> None:
        for _ in range(10):
            self.pull(1)

    def _compare_level(self, level: int, there: list[Message]) -> None:
        most_urgent = min(m.level for m in there)
        if self.said == STRICT:
            assert level == most_urgent, f"level {level} of {there}"
        elif self.said == AGED:
            self._compare_age(level, most_urgent, there)

    def _compare_age(self, level: int, most_urgent: int, there: list[Message]) -> None:
        if level == most_urgent:
            self.passed.clear()
        else:
            waiting = [m for m in self.messages if m.level == level and m.waits(self.now)]
            assert any(m.published <= self.now - AGE for m in waiting), f"{level} of {there} is not old"
            assert level not in self.passed, f"{level} has a second turn before {most_urgent}"
            self.passed.add(level)
        for each in self.late:
            old = [m for m in there if m.level == each and max(m.ready, self.sought) <= self.now - AGE]
            self.late[each] = self.late[each] + 1 if old and each != level else 0
            assert self.late[each] <= _PATIENCE, f"{each} is old and has no turn"

    def _out(self, chosen: list[int]) -> list[Message]:
        out = [m for m in self.messages if m.is_out(self.now) and (m.until is None or self.now < m.until)]
        return list(dict.fromkeys(out[choice % len(out)] for choice in chosen)) if out else []

    @rule(chosen=choices)
    def acknowledge(self, chosen: list[int]) -> None:
        self._acknowledge(self._out(chosen))

    def _acknowledge(self, messages: list[Message]) -> None:
        if messages:
            self._call("POST", f"{self.subscription}:acknowledge", {"ackIds": [m.ack_id for m in messages]})
        for message in messages:
            message.acked = True

    @rule(chosen=choices)
    def nack(self, chosen: list[int]) -> None:
        if messages := self._out(chosen):
            body = {"ackIds": [m.ack_id for m in messages], "ackDeadlineSeconds": 0}
            self._call("POST", f"{self.subscription}:modifyAckDeadline", body)
        for message in messages:
            message.ready, message.ack_id = self.now, ""

    @rule(chosen=choices)
    def retract(self, chosen: list[int]) -> None:
        found = [m for m in self.messages if not m.retracted]
        if found:
            messages = list(dict.fromkeys(found[choice % len(found)] for choice in chosen))
            self._call("POST", f"{self.topic}:retract", {"messageIds": [m.message_id for m in messages]})
            for message in messages:
                message.retracted = True

    @rule()
    def take_snapshot(self) -> None:
        path = f"{self.project}/snapshots/snap"
        if self.snapshot is None:
            self._call("PUT", path, {"subscription": self.subscription})
            self.snapshot = len(self.messages), {m.number for m in self.messages if m.acked}

    @rule()
    def seek(self) -> None:
        """What was acked then is, and all else is there again."""
        if self.snapshot is None:
            return
        self._call("POST", f"{self.subscription}:seek", {"snapshot": f"{self.project}/snapshots/snap"})
        self.sought = self.now
        for message in self.messages:
            message.acked = message.number in self.snapshot[1]
            message.ready, message.ack_id = min(message.ready, self.now), ""

    @rule(said=st.sampled_from([STRICT, AGED, WEIGHED]))
    def change(self, said: Json) -> None:
        """What waits stays as urgent as it is."""
        self.said = said
        self.passed.clear()
        self.late = dict.fromkeys(self.late, 0)
        body = {"topic": {"extensions": said | {"expiry": True}}, "updateMask": "extensions"}
        self._call("PATCH", self.topic, body)

    @rule(seconds=st.sampled_from([1, 4, 10, 30, 60]))
    def time_passes(self, seconds: int) -> None:
        self.broker.move_time(timedelta(seconds=seconds))
