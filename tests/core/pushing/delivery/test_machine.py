"""Hypothesis makes up what endpoints answer and what happens meanwhile; broker and PostgreSQL are real (A6, A8).

Whatever has happened: once its endpoint is healthy a subscription delivers everything within bounded time, sends
nothing again that was taken, and keeps the order of each key.  Leases are longer than a run, so nothing that sleeps
is woken by one.
"""

import asyncio
import base64
import itertools
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from broker.core.claiming.transaction import claim as claiming
from broker.model.errors import Aborted, Unavailable
from tests.fixtures.broker import Rest, eventually, message
from tests.fixtures.pusher import Call, Pushing, running_pusher

T = TypeVar("T")

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ordered": {"enableMessageOrdering": True},
    "narrow": {"extensions": {"push": {"maxOutstandingRequests": 1}}},
    "urgent": {"extensions": {"push": {"urgent": True}}},
    "digest": {"extensions": {"push": {"digest": {"maxMessages": 3, "maxDelay": "0.1s"}}}},
}
MAX_FAILURES = 6  # of a run: each round of them doubles the push backoff

kinds = st.sampled_from(sorted(KINDS))


class PushMachine(RuleBasedStateMachine):
    """One run: a topic of its own, with a subscription of each kind."""

    loop: asyncio.AbstractEventLoop
    pushing: Pushing
    faults: list[Exception]
    _numbers = itertools.count()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def name(self, kind: str) -> str:
        return f"{kind}-{self.number}"

    @property
    def rest(self) -> Rest:
        return self.pushing.rest

    @initialize()
    def begin(self) -> None:
        self.number = next(self._numbers)
        self.published: list[tuple[str, str]] = []  # key, text
        self.failures = 0
        self.pushing.far_side.calls.clear()
        self.run(self.rest.create_topic(f"topic-{self.number}"))
        for kind, fields in KINDS.items():
            config = {"pushEndpoint": f"http://far.example/{kind}/{self.number}"}
            topic = f"topic-{self.number}"
            fields = {"ackDeadlineSeconds": 600, **fields}  # whatever sleeps is not woken by that
            self.run(self.rest.create_subscription(self.name(kind), topic, pushConfig=config, **fields))

    def open_calls(self, kind: str) -> list[Call]:
        return [c for c in self.pushing.far_side.open_calls if c.request.url.endswith(f"/{kind}/{self.number}")]

    @rule(count=st.integers(1, 12), key=st.sampled_from(["", "a", "b"]))
    def publish(self, count: int, key: str) -> None:
        texts = [f"{len(self.published) + n}" for n in range(count)]
        batch = [message(text, **({"orderingKey": key} if key else {})) for text in texts]
        self.run(self.rest.publish(*batch, topic=f"topic-{self.number}"))
        self.published += [(key, text) for text in texts]

    @rule(kind=kinds, count=st.integers(1, 8))
    def take(self, kind: str, count: int) -> None:
        for call in self.open_calls(kind)[:count]:
            call.answer(200)

    @precondition(lambda self: self.failures < MAX_FAILURES)
    @rule(kind=kinds, count=st.integers(1, 3), retry_after=st.sampled_from([None, None, 0.2]), last=st.booleans())
    def refuse(self, kind: str, count: int, retry_after: float | None, last: bool) -> None:
        calls = self.open_calls(kind)
        for call in calls[-count:] if last else calls[:count]:
            call.answer(503, retry_after=retry_after)
            self.failures += 1

    @rule(milliseconds=st.sampled_from([0, 2, 20, 120]))
    def let_time_pass(self, milliseconds: int) -> None:
        self.run(asyncio.sleep(milliseconds / 1000))

    @rule(kind=kinds)
    def change(self, kind: str) -> None:
        """Something of the subscription: it is read again, and nothing is sent until then."""
        self.pushing.broker.pusher.resource_changed(self.rest.subscription(self.name(kind)))

    @rule(kind=kinds)
    def belong_to_another(self, kind: str) -> None:
        """Another process takes the subscription, and gives it back: what was not sent is given back."""
        endpoints = self.pushing.broker.pusher._endpoints
        known = endpoints._by_name.get(self.rest.subscription(self.name(kind)))
        if known is not None:

            async def change_hands() -> None:
                endpoints._remove(known)
                endpoints.resource_changed(known.subscription.name)

            self.run(change_hands())  # what is given back is written by a task

    @rule(fault=st.sampled_from([Unavailable, Aborted]), count=st.integers(1, 4))
    def fail_claims(self, fault: type[Exception], count: int) -> None:
        """The next claims do not reach the database."""
        self.faults[:] = [fault("for the test")] * count

    def teardown(self) -> None:
        if not hasattr(self, "published"):
            return
        self.faults.clear()
        self.pushing.far_side.answers = lambda _: 200
        for call in self.pushing.far_side.open_calls:
            call.answer(200)
        try:
            self.run(self.drain())
            for kind in KINDS:
                self.check(kind)
        finally:
            self.pushing.far_side.answers = lambda _: None
            for kind in KINDS:
                self.run(self.rest.ok("DELETE", self.rest.subscription(self.name(kind))))

    async def drain(self) -> None:
        for kind in KINDS:
            await self.pushing.settled(self.name(kind))

    def check(self, kind: str) -> None:
        arrived: dict[str, list[tuple[str, Call]]] = defaultdict(list)
        keys = {text: key for key, text in self.published}
        for call in self.pushing.far_side.calls:
            if call.request.url.endswith(f"/{kind}/{self.number}"):
                for text in _texts(call):
                    arrived[keys[text]].append((text, call))
        for key in {key for key, _ in self.published}:
            taken = [text for text, call in arrived[key] if _is_taken(call)]
            assert sorted(taken) == sorted(text for k, text in self.published if k == key), "each is taken once"
            for text in taken:
                last = [call for other, call in arrived[key] if other == text][-1]
                assert _is_taken(last), "nothing is sent again once it was taken"
            if kind == "ordered" and key:
                order = [text for text, _ in itertools.groupby(arrived[key], key=lambda pair: pair[0])]
                assert order == [text for k, text in self.published if k == key]


def _texts(call: Call) -> list[str]:
    wrapped = call.body.get("messages") or [call.body]
    return [base64.b64decode(item["message"]["data"]).decode() for item in wrapped]


def _is_taken(call: Call) -> bool:
    return call.outcome.done() and not call.outcome.cancelled() and call.outcome.result().status == 200  # type: ignore[union-attr]


@pytest.fixture
def machine(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[PushMachine]]:
    """With a broker that all runs share, in a loop that runs while a rule waits."""
    faults: list[Exception] = []

    def faulty(claim: Callable[..., Any]) -> Callable[..., Any]:
        async def claimed(*arguments: Any) -> Any:
            if faults:
                raise faults.pop()
            return await claim(*arguments)

        return claimed

    monkeypatch.setattr(claiming, "claim_messages", faulty(claiming.claim_messages))
    with asyncio.Runner() as runner:
        context = running_pusher(database_url)
        pushing = runner.run(context.__aenter__())
        loop = runner.get_loop()
        try:
            yield type("Machine", (PushMachine,), {"loop": loop, "pushing": pushing, "faults": faults})
        finally:
            runner.run(context.__aexit__(None, None, None))


@pytest.mark.slow
@pytest.mark.ci
def test_nothing_sleeps_whatever_happens(machine: type[PushMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15,
            stateful_step_count=20,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


async def test_the_machine_notices_what_sleeps() -> None:
    """`eventually`, on which it relies, fails."""
    with pytest.raises(AssertionError):
        await eventually(lambda: False, seconds=0.01)
