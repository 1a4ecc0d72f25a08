"""A claim for many subscriptions hands out what claims for each of them would (A7, A8).

On generated logs half of the subscriptions are claimed for one by one, as pulls are, and their twins, which stand
at the same place with the same filter and limits, by one claim for all of them.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.acking.delivery_attempts import acknowledge
from broker.core.filtering.jsonpath import to_jsonpath
from broker.core.filtering.parser import parse_filter
from broker.model.ack_id import attempt_name
from broker.model.delivery import Delivery
from broker.model.retry_policy import RetryPolicy
from tests.core.claiming.state_machines import on_database
from tests.fixtures.log import SECOND, make_log
from tests.fixtures.push_log import PushLog, make_push_log

FILTERS = [None, to_jsonpath(parse_filter('attributes.env = "a"')), to_jsonpath(parse_filter("NOT attributes:env"))]
POLICY = RetryPolicy(minimum_backoff=4 * SECOND, maximum_backoff=9 * SECOND)


@dataclass(frozen=True)
class Subscriber:
    """How a subscription is claimed for.  With 1 byte each message goes alone; in between, what a pull reads first
    and what a push reads first may end at different messages.
    """

    filter_path: str | None
    max_messages: int
    max_bytes: int
    retry_policy: RetryPolicy | None
    max_attempts: int | None
    retention: timedelta


subscribers = st.builds(
    Subscriber,
    filter_path=st.sampled_from(FILTERS),
    max_messages=st.sampled_from([1, 2, 3, 7, 1000]),
    max_bytes=st.sampled_from([1, 10_000_000]),
    retry_policy=st.sampled_from([None, POLICY]),
    max_attempts=st.sampled_from([None, 2]),
    retention=st.sampled_from([timedelta(seconds=15), timedelta(days=7)]),
)
publishes = st.tuples(st.just("publish"), st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=8))
rounds = st.tuples(st.just("claim"), st.lists(st.booleans(), min_size=1, max_size=4))
waits = st.tuples(st.just("wait"), st.sampled_from([1, 4, 10]))
steps = st.lists(st.one_of(publishes, rounds, waits), min_size=3, max_size=14)


def shape(deliveries: Any) -> list[tuple[int, list[str]]]:
    return [(d.attempt_number, [m.data.decode() for m in d.messages]) for d in deliveries]


class Twins:
    """Subscriptions 0 to n - 1 are claimed for one by one, n to 2n - 1 by one claim."""

    def __init__(self, push_log: PushLog, members: list[Subscriber]) -> None:
        self.push_log = push_log
        self.members = members
        self.now = push_log.start
        self.published = 0

    async def publish(self, envs: list[str]) -> None:
        for env in envs:
            self.published += 1
            attributes = {"env": env} if env else {}
            await self.push_log.publish(f"m{self.published}", now=self.now, **attributes)

    async def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND

    async def claim(self, chosen: list[bool]) -> None:
        """For the chosen subscriptions; every second delivery is acked."""
        numbers = [n for n in range(len(self.members)) if chosen[n % len(chosen)]]
        one_by_one = [await self._pull(number) for number in numbers]
        requests = [self._request(number) for number in numbers]
        together = await self.push_log.claim_for(*requests, now=self.now)
        for number, pulled, pushed in zip(numbers, one_by_one, together, strict=True):
            assert shape(pushed.deliveries) == shape(pulled)
            await self._acknowledge(number, pulled)
            await self._acknowledge(len(self.members) + number, pushed.deliveries)
            if pushed.deliveries == [] and not pushed.more:
                assert not await self._pull(number), "there was more"

    async def _pull(self, number: int) -> list[Delivery]:
        member = self.members[number]
        return await self.push_log.log.pull(
            member.max_messages,
            now=self.now,
            subscription_id=self.push_log.ids[number],
            filter_path=member.filter_path,
            retry_policy=member.retry_policy,
            max_attempts=member.max_attempts,
            max_bytes=member.max_bytes,
            retention=member.retention,
        )

    def _request(self, number: int) -> Any:
        member = self.members[number]
        return self.push_log.target(
            len(self.members) + number,
            max_messages=member.max_messages,
            filter_path=member.filter_path,
            retry_policy=member.retry_policy,
            max_attempts=member.max_attempts,
            max_bytes=member.max_bytes,
            retained_since=self.now - member.retention,
        )

    async def _acknowledge(self, number: int, deliveries: Any) -> None:
        for delivery in deliveries[::2]:
            name = attempt_name(self.push_log.ids[number], delivery)
            async with self.push_log.log.database.hot() as session:
                missing = await acknowledge(
                    session, shard_id=delivery.shard_id, acks={name: set(range(name.count))}
                )
            assert not missing

    async def compare(self) -> None:
        """Cursors, and what is out."""
        count = len(self.members)
        state = []
        for ids in (self.push_log.ids[:count], self.push_log.ids[count:]):
            order = f"array_position(ARRAY{ids}::int8[], subscription_id)"
            cursors = await self.push_log.log.rows(
                f"SELECT next_publish_time, next_seq FROM cursors"
                f" WHERE subscription_id = ANY (ARRAY{ids}) ORDER BY {order}"
            )
            attempts = await self.push_log.log.rows(
                f"SELECT {order} AS n, status, attempt_number, next_delivery_at, seqs::text, open::text"
                f" FROM delivery_attempts WHERE subscription_id = ANY (ARRAY{ids})"
                f" ORDER BY n, seqs, attempt_number, next_delivery_at"
            )
            state.append((cursors, attempts))
        assert state[0] == state[1]


class Machine:
    runner: asyncio.Runner
    database: Any
    number = 0


def test_a_claim_for_many_hands_out_what_claims_for_each_would(database_url: str) -> None:
    with on_database(Machine, database_url) as machine:

        async def run(members: list[Subscriber], script: list[tuple[str, Any]]) -> None:
            Machine.number += 1
            now = (await machine.database.now()).replace(microsecond=0)
            log = await make_log(machine.database, now, f"twins{Machine.number}")
            twins = Twins(await make_push_log(log, 2 * len(members)), members)
            for step, argument in script:
                await getattr(twins, step)(argument)
                await twins.compare()

        @settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(members=st.lists(subscribers, min_size=1, max_size=4), script=steps)
        def agree(members: list[Subscriber], script: list[tuple[str, Any]]) -> None:
            machine.runner.run(run(members, script))

        agree()
