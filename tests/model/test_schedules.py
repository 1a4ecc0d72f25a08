"""Each tick of a schedule is one message, whatever is done to the schedule and however time passes (J2)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from broker.model.timestamps import format_timestamp
from tests.fixtures.broker import Json, message
from tests.model.model import HOUR, MINUTE, SECOND
from tests.model.running_broker import RunningBroker

# It is the broker that does, in a thread of its own, while the test makes up what to do next.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the .random. module inside strategies")

GRACE = MINUTE  # a tick that is late by no more is not missed
names = st.sampled_from(["one", "two"])
missed_ticks = st.sampled_from(["ONE", "SKIP"])


@dataclass
class Schedule:
    """`anchor`: a tick, from which the others are counted; `next`: None while it is paused."""

    every: timedelta
    missed: str
    anchor: datetime
    next: datetime | None

    def after(self, moment: datetime) -> datetime:
        return self.anchor + ((moment - self.anchor) // self.every + 1) * self.every

    def passes(self, now: datetime) -> Iterator[datetime]:
        """The ticks that come until now; of those that were missed none, or the last one."""
        late = now - GRACE
        if self.next is not None and self.next < late:
            last = self.after(late) - self.every
            last = last - self.every if last == late else last
            self.next = self.after(last) if self.missed == "SKIP" else last
        while self.next is not None and self.next <= now:
            yield self.next
            self.next = self.after(self.next)


class Schedules(RuleBasedStateMachine):
    broker: RunningBroker
    number = 0

    @initialize(seconds=st.sampled_from([1, 1, 7, 60]), missed=missed_ticks)
    def begin(self, seconds: int, missed: str) -> None:
        Schedules.number += 1
        self.project = f"projects/schedules-{Schedules.number}"
        self.schedules: dict[str, Schedule] = {}
        self.expected: list[tuple[str, str]] = []  # the schedule and the time of each tick that is to come
        self.call("PUT", "topics/topic")
        self.call("PUT", "subscriptions/sub", {"topic": f"{self.project}/topics/topic"})
        self.put("one", seconds, missed)

    def call(self, method: str, path: str, body: Json | None = None, *, code: int = 200) -> Any:
        answer = self.broker.client.request(method, f"/v1/{self.project}/{path}", json=body)
        assert answer.status_code == code, answer.text
        return answer.json()

    @rule(name=names, seconds=st.sampled_from([1, 7, 60, 3600]), missed=missed_ticks)
    def put(self, name: str, seconds: int, missed: str) -> None:
        """What has the same times as before keeps its next tick; what is paused stays so."""
        body = {"topic": f"{self.project}/topics/topic", "message": message("m"), "missed": missed}
        self.call("PUT", f"schedules/{name}", body | {"interval": f"{seconds}s"})
        now, had = self.broker.now, self.schedules.get(name)
        new = Schedule(seconds * SECOND, missed, now.replace(microsecond=0), None)
        if had is not None and had.every == new.every:
            new.anchor, new.next = had.anchor, had.next
        elif had is None or had.next is not None:
            new.next = new.after(now)
        self.schedules[name] = new

    @rule(name=names, verb=st.sampled_from(["pause", "resume"]))
    def pause_or_resume(self, name: str, verb: str) -> None:
        schedule = self.schedules.get(name)
        self.call("POST", f"schedules/{name}:{verb}", {}, code=200 if schedule else 404)
        if schedule is not None and verb == "pause":
            schedule.next = None
        elif schedule is not None and schedule.next is None:
            schedule.next = schedule.after(self.broker.now)

    @rule(name=names)
    def run(self, name: str) -> None:
        """A tick more, whatever is planned."""
        there = name in self.schedules
        ran = self.call("POST", f"schedules/{name}:run", {}, code=200 if there else 404)
        if there:
            self.expected.append((name, ran["runTime"]))

    @rule(name=names)
    def delete(self, name: str) -> None:
        self.call("DELETE", f"schedules/{name}", code=200 if name in self.schedules else 404)
        self.schedules.pop(name, None)

    @rule(
        delta=st.sampled_from([SECOND, SECOND / 8, 7 * SECOND, 59 * SECOND, MINUTE, 61 * SECOND, HOUR, 25 * HOUR])
    )
    def time_passes(self, delta: timedelta) -> None:
        self.broker.move_time(delta)
        self.broker.tick()
        for name, schedule in self.schedules.items():
            self.expected += [(name, format_timestamp(tick)) for tick in schedule.passes(self.broker.now)]

    @invariant()
    def each_tick_is_one_message(self) -> None:
        received: list[tuple[str, str]] = []
        body = {"maxMessages": 1_000, "returnImmediately": True}
        while some := self.call("POST", "subscriptions/sub:pull", body).get("receivedMessages", []):
            self.call("POST", "subscriptions/sub:acknowledge", {"ackIds": [each["ackId"] for each in some]})
            attributes = [each["message"]["attributes"] for each in some]
            received += [(each["broker-schedule"], each["broker-tick"]) for each in attributes]
        assert sorted(received) == sorted(self.expected)
        self.expected = []


@contextmanager
def _machine(database_url: str) -> Iterator[type[Schedules]]:
    with RunningBroker(database_url).running() as broker:
        yield type("BoundSchedules", (Schedules,), {"broker": broker})


def test_each_tick_is_one_message_whatever_is_done_to_the_schedule(database_url: str) -> None:
    chosen = settings(
        max_examples=8,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    with _machine(database_url) as machine:
        run_state_machine_as_test(machine, settings=chosen)
