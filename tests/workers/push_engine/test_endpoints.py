"""The endpoints of a process follow the push subscriptions in the database (A8, C8)."""

from tests.fixtures.broker import eventually
from tests.fixtures.pusher import Pushing


async def test_an_endpoint_comes_and_goes_with_its_subscription(pushing: Pushing) -> None:
    await pushing.subscribe()
    old, claims = pushing.endpoint, pushing.broker._push_claims
    [member] = claims._members.values()
    await pushing.rest.ok("DELETE", pushing.rest.subscription())
    await eventually(lambda: not pushing.endpoints)
    assert old.closed
    assert member.alarm is None or member.alarm.cancelled()
    assert not claims._shards, "nobody's shard is not watched"


async def test_a_change_that_nobody_told_of_is_seen_when_the_connection_is_made_anew(pushing: Pushing) -> None:
    await pushing.subscribe()
    await pushing.execute("""UPDATE subscriptions SET push_config = '{"endpoint": "http://far.example/new"}'""")
    await pushing.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    await eventually(lambda: pushing.endpoint.subscription.push_config.endpoint.endswith("/new"))
    pushing.far_side.answers = lambda _: 200
    await pushing.rest.publish("hello")
    [call] = await pushing.far_side.wait_for(1)
    assert call.request.url.endswith("/new")


async def test_another_url_is_another_endpoint_and_what_is_out_goes_on(pushing: Pushing) -> None:
    await pushing.subscribe()
    await pushing.rest.publish("1")
    [call] = await pushing.far_side.wait_for(1)
    old = pushing.endpoint
    config = {"pushConfig": {"pushEndpoint": "http://far.example/new"}}
    await pushing.rest.ok("POST", f"{pushing.rest.subscription()}:modifyPushConfig", config)
    await eventually(lambda: pushing.endpoint is not old)
    call.answer(200)
    await pushing.settled()
    assert len(pushing.far_side.calls) == 1
    assert (old.bytes_held, len(old.flights), old.health.outstanding) == (0, 0, 0)


async def test_what_was_claimed_and_not_sent_is_given_back_when_the_endpoint_goes(pushing: Pushing) -> None:
    await pushing.subscribe()
    await pushing.warm_up()
    await pushing.rest.publish(*[str(n) for n in range(300)])
    await eventually(lambda: len(pushing.endpoint.buffer) > 100)
    old = pushing.endpoint
    pushing.broker.pusher._endpoints._remove(old)
    out = {call.text for call in pushing.far_side.open_calls}
    pushing.far_side.answers = lambda _: 200
    pushing.broker.pusher.resource_changed(old.subscription.name)
    await pushing.far_side.wait_for(300)
    for call in pushing.far_side.open_calls:
        call.answer(200)
    await pushing.settled()
    assert sorted(pushing.far_side.texts) == sorted(str(n) for n in range(300)), "none twice"
    assert {call.body.get("deliveryAttempt") for call in pushing.far_side.calls} == {None}
    assert old.bytes_held == 0
    assert out


async def test_everything_is_given_back_by_the_books_when_all_is_settled(pushing: Pushing) -> None:
    """Bytes, slots and parcels, whatever became of the messages."""
    digest = {"maxMessages": 5, "maxDelay": "0.1s"}
    await pushing.subscribe()
    await pushing.subscribe("digest", "http://far.example/digest", extensions={"push": {"digest": digest}})
    statuses = iter([200, 500, 503, 200, 200, 404])
    pushing.far_side.answers = lambda _: next(statuses, 200)
    await pushing.rest.publish(*[str(n) for n in range(60)])
    await pushing.settled()
    await pushing.settled("digest")
    for endpoint in pushing.endpoints.values():
        held = (endpoint.bytes_held, endpoint.asked, len(endpoint.buffer), len(endpoint.flights))
        assert held == (0, 0, 0, 0)
        assert endpoint.health.outstanding == 0
    sender = pushing.broker.pusher._sender
    assert (sender._open, sender._open_to_failing, len(sender._running)) == (0, 0, 0)
