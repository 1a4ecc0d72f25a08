"""What a process keeps of a stream, a pull, a key or a subscription ends with its last user."""

from datetime import datetime, timedelta

from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.core.pulling.flow_control import FlowControl
from broker.core.pulling.long_poll import LongPoll
from broker.core.pulling.outstanding import LEFT, Outstanding
from broker.core.pulling.readers import Readers
from broker.core.pulling.stream_service import StreamingPullService
from broker.model.delivery import Delivery, StoredMessage
from tests.fixtures.broker import eventually
from tests.fixtures.claims import pull_claims
from tests.fixtures.core import make_core
from tests.fixtures.log import Log, add_subscription

_SUBSCRIPTIONS, _KEYS = 20, 30
_LEASE = timedelta(seconds=60)


async def test_streams_that_have_ended_leave_nothing_behind(log: Log) -> None:
    names = [f"sub-{number}" for number in range(_SUBSCRIPTIONS)]
    async with log.database.transaction() as connection:
        for name in names:
            await add_subscription(connection, log.topic, name, log.start)
    await log.execute("UPDATE subscriptions SET enable_message_ordering = true")
    clock, tasks = DatabaseClock(log.database), Tasks()
    await clock.synchronise()
    for key in range(_KEYS):
        await log.publish("a", key=f"k{key}", now=clock.now())
    claims = pull_claims(log.database, clock, tasks)
    core = make_core(log.database, clock, tasks)
    long_poll, outstanding = LongPoll(core, claims), Outstanding(log.database, clock)
    activity = SubscriptionActivity(log.database, clock)
    service = StreamingPullService(core, long_poll, outstanding, activity, Readers(log.database, clock))
    for name in names:
        streams = [
            await service.open(
                f"projects/p/subscriptions/{name}", FlowControl(_KEYS // 2, 0), ack_deadline=_LEASE, client_id=""
            )
            for _ in range(2)
        ]
        for stream in streams:
            await stream.receive()
        assert len(long_poll.key_owners) == _KEYS
        streams[0].close()
        assert 0 < len(long_poll.key_owners) < _KEYS  # those of the other
        streams[1].close()
    assert len(long_poll.key_owners) == 0
    assert not outstanding._windows
    assert not outstanding._open
    assert not outstanding._left
    await eventually(lambda: not tasks._running)
    assert not long_poll._queues
    assert not claims._scheduled
    assert not claims.watched_shards()
    await tasks.close()


class _Clock(DatabaseClock):
    """The log's time, which the test moves."""

    def __init__(self, log: Log) -> None:
        self.time = log.start

    def now(self) -> datetime:
        return self.time


async def test_clients_that_left_are_forgotten_when_what_they_had_is_settled_or_must_be_due(log: Log) -> None:
    clock = _Clock(log)
    outstanding = Outstanding(log.database, clock)
    message = StoredMessage(1, log.start, None, "{}", b"")
    deliveries = [Delivery(log.shard_id, number, 1, [message]) for number in range(100)]
    for number, delivery in enumerate(deliveries):
        window = outstanding.open(log.subscription.subscription_id, f"client-{number}", FlowControl(10, 0))
        outstanding.handed_out(window, [delivery])
        outstanding.close(window)
    assert len(outstanding._left) == 100
    outstanding.remove([{log.name(delivery): {0} for delivery in deliveries[:40]}])
    assert len(outstanding._left) == len(outstanding._windows) == 60
    clock.time += LEFT
    window = outstanding.open(log.subscription.subscription_id, "another", FlowControl(10, 0))
    outstanding.handed_out(window, [Delivery(log.shard_id, 1000, 1, [message])])
    outstanding.close(window)
    assert len(outstanding._left) == len(outstanding._windows) == 1
