"""Pull over REST: how much, how long, what comes back, as Google's service does it (A7)."""

import asyncio
import base64
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

import httpx
import pytest

from tests.fixtures.broker import NO_TLS, Json, Rest, text

T = TypeVar("T")
PARKED = 0.3
"""Seconds after which a pull that was sent is taken to be waiting.  Earlier is no error, only a weaker test."""
SHORT_OF_A_DEADLINE = 60
"""Less than the ack deadline of 600 s: what arrives within it was not a redelivery after a lease ran out."""


async def meanwhile(waiting: Awaitable[T], act: Awaitable[Any]) -> T:
    """The result of `waiting`, when `act` is started once it waits."""

    async def later() -> None:
        await asyncio.sleep(PARKED)
        await act

    async with asyncio.timeout(SHORT_OF_A_DEADLINE):
        return (await asyncio.gather(waiting, later()))[0]


@pytest.fixture(autouse=True)
async def subscription(rest: Rest) -> str:
    """A topic with the subscription `sub`."""
    await rest.create_topic()
    await rest.create_subscription(ackDeadlineSeconds=600)
    return rest.subscription()


async def test_a_pull_that_may_not_wait_answers_an_empty_object(rest: Rest, subscription: str) -> None:
    """A7: at once, in both spellings of the field."""
    for name in ("returnImmediately", "return_immediately"):
        assert await rest.ok("POST", f"{subscription}:pull", {"maxMessages": 5, name: True}) == {}


@pytest.mark.parametrize("body", [{}, {"maxMessages": 0}, {"maxMessages": -1}])
async def test_max_messages_must_be_positive(rest: Rest, subscription: str, body: Json) -> None:
    """A7: Google's emulator answers a negative one."""
    status, message = await rest.error("POST", f"{subscription}:pull", body)
    assert status == "INVALID_ARGUMENT"
    assert "You have passed an invalid argument to the service (argument=max_messages)" in message


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, "abc", 1.5, [], True])
async def test_max_messages_must_be_an_int32(rest: Rest, subscription: str, number: Any) -> None:
    """A12: the field is named."""
    status, message = await rest.error("POST", f"{subscription}:pull", {"maxMessages": number})
    assert status == "INVALID_ARGUMENT"
    assert "maxMessages" in message or "max_messages" in message


async def test_a_pull_returns_no_more_than_asked(rest: Rest) -> None:
    """A7: the next pulls go on where it ended; what is out is with nobody else."""
    await rest.publish(*"abcde")
    assert [text(m) for m in await rest.pull(max_messages=2)] == ["a", "b"]
    assert [text(m) for m in await rest.pull(max_messages=2)] == ["c", "d"]
    assert [text(m) for m in await rest.pull(max_messages=2)] == ["e"]
    assert await rest.pull() == [], "leased messages are hidden"


async def test_one_pull_returns_a_thousand_messages_and_never_more(rest: Rest) -> None:
    """A7: Google's emulator stops at 100."""
    await rest.publish(*(str(n) for n in range(1000)))
    await rest.publish("1000")
    assert [text(m) for m in await rest.pull(max_messages=5000)] == [str(n) for n in range(1000)]
    assert [text(m) for m in await rest.pull(max_messages=2**31 - 1)] == ["1000"]


async def test_a_response_is_bounded_in_bytes(rest: Rest) -> None:
    """A7: at least one message, however large; the others come with the next pull."""
    data = base64.b64encode(bytes(7_000_000)).decode()
    for _ in range(3):
        await rest.publish({"data": data})
    first = await rest.pull()
    assert 1 <= len(first) <= 2
    await rest.acknowledge(first)
    assert len(first) + len(await rest.drain()) == 3


async def test_a_waiting_pull_is_answered_by_a_publish(rest: Rest) -> None:
    """A7, B4: it is woken; it does not look again and again."""
    assert [text(m) for m in await meanwhile(rest.pull(wait=True), rest.publish("now"))] == ["now"]


async def test_a_waiting_pull_answers_with_what_there_is(rest: Rest) -> None:
    """A7: gcloud sends returnImmediately false; it is not kept until maxMessages are there."""
    await rest.publish("one", "two")
    async with asyncio.timeout(SHORT_OF_A_DEADLINE):
        assert [text(m) for m in await rest.pull(max_messages=50, wait=True)] == ["one", "two"]


async def test_a_waiting_pull_is_answered_by_a_nack(rest: Rest) -> None:
    """A7: it is woken by that as by a publish."""
    await rest.publish("again")
    leased = await rest.pull()
    again = await meanwhile(rest.pull(wait=True), rest.modify_ack_deadline(leased, 0))
    assert [text(m) for m in again] == ["again"]


async def test_each_message_goes_to_one_of_several_waiting_pulls(rest: Rest) -> None:
    """A7: the others wait on."""
    pulls = asyncio.gather(*(rest.pull(max_messages=1, wait=True) for _ in range(3)))
    received = await meanwhile(pulls, rest.publish("a", "b", "c"))
    assert sorted(text(m) for (m,) in received) == ["a", "b", "c"]


async def test_concurrent_pulls_share_the_backlog_without_duplicates(rest: Rest) -> None:
    """A7: and nothing is left out between them."""
    await rest.publish(*(str(n) for n in range(200)))
    pulled = await asyncio.gather(*(rest.pull(max_messages=30) for _ in range(10)))
    received = [text(m) for messages in pulled for m in messages] + [
        text(m) for m in await rest.pull(max_messages=999)
    ]
    assert sorted(received, key=int) == [str(n) for n in range(200)]


async def test_a_pull_whose_caller_hung_up_swallows_no_message(
    rest: Rest, broker_url: str, subscription: str
) -> None:
    """A7: Google's emulator hands it to the dead request and it is lost for an ack deadline."""
    async with httpx.AsyncClient(
        base_url=broker_url, timeout=httpx.Timeout(20, read=PARKED), verify=NO_TLS
    ) as client:
        for _ in range(3):
            with pytest.raises(httpx.ReadTimeout):
                await client.post(f"/v1/{subscription}:pull", json={"maxMessages": 10})
    await rest.publish("alive")
    async with asyncio.timeout(SHORT_OF_A_DEADLINE):
        assert [text(m) for m in await rest.pull(wait=True)] == ["alive"]


async def test_deleting_the_subscription_ends_a_waiting_pull(rest: Rest, subscription: str) -> None:
    """A7: Google's emulator never answers it."""
    waiting = rest.call("POST", f"{subscription}:pull", {"maxMessages": 1})
    response = await meanwhile(waiting, rest.ok("DELETE", subscription))
    assert response.status_code == 404
    assert response.json()["error"]["status"] == "NOT_FOUND"


async def test_detaching_the_subscription_ends_a_waiting_pull(rest: Rest, subscription: str) -> None:
    """A7: with FAILED_PRECONDITION, not by its time running out."""
    waiting = rest.call("POST", f"{subscription}:pull", {"maxMessages": 1})
    response = await meanwhile(waiting, rest.ok("POST", f"{subscription}:detach"))
    assert response.status_code == 400
    assert response.json()["error"]["status"] == "FAILED_PRECONDITION"


async def test_a_pull_may_wait_on_a_subscription_whose_topic_is_deleted(rest: Rest) -> None:
    """A7, A2: what was published before can still come back."""
    await rest.publish("kept")
    leased = await rest.pull()
    await rest.ok("DELETE", rest.topic())
    again = await meanwhile(rest.pull(wait=True), rest.modify_ack_deadline(leased, 0))
    assert [text(m) for m in again] == ["kept"]
    await rest.acknowledge(again)
    assert await rest.pull() == []


async def back(rest: Rest, began: float, name: str = "sub") -> Json:
    """A message that is due a second after it was given back, which was not before `began`."""
    received = await rest.pull(name)
    assert not received or time.monotonic() - began >= 1, "not before"
    if not received:
        async with asyncio.timeout(SHORT_OF_A_DEADLINE):
            received = await rest.pull(name, wait=True)
    (again,) = received
    return again


async def test_a_message_comes_back_when_its_deadline_has_passed(rest: Rest) -> None:
    """A7: with the same message id, a new ack id, to whoever waits."""
    await rest.publish("late")
    (first,) = await rest.pull()
    began = time.monotonic()
    await rest.modify_ack_deadline([first], 1)
    second = await back(rest, began)
    assert second["message"] == first["message"]
    assert second["ackId"] != first["ackId"]


async def test_a_message_whose_deadline_was_extended_does_not_come_back(rest: Rest) -> None:
    """A7: the deadline counts from the change, and the last change counts."""
    await rest.publish("extended", "expiring")
    extended, expiring = await rest.pull()
    await rest.modify_ack_deadline([extended], 1)
    await rest.modify_ack_deadline([extended], 600)
    await rest.modify_ack_deadline([expiring], 1)
    async with asyncio.timeout(SHORT_OF_A_DEADLINE):
        assert [text(m) for m in await rest.pull(wait=True)] == ["expiring"]
    assert await rest.pull() == []


async def test_subscriptions_are_independent(rest: Rest) -> None:
    """A2: a lease and an ack on one are nothing to the other."""
    await rest.create_subscription("other")
    await rest.publish("message")
    assert len(await rest.drain()) == 1
    assert [text(m) for m in await rest.pull("other")] == ["message"]
    assert await rest.pull() == []


async def test_ack_ids_are_safe_in_urls_and_new_for_every_delivery(rest: Rest) -> None:
    """A7: clients print them and paste them."""
    await rest.publish(*"abc")
    seen: set[str] = set()
    for _ in range(3):
        received = await rest.pull()
        seen |= {m["ackId"] for m in received}
        await rest.modify_ack_deadline(received, 0)
    assert len(seen) == 9
    assert all(ack_id and set(ack_id) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
               for ack_id in seen)  # fmt: skip


async def test_a_nack_is_redelivered_after_the_minimum_backoff_from_the_first_on(rest: Rest) -> None:
    """A4: Google's emulator redelivers the first nack at once."""
    policy = {"minimumBackoff": "1s", "maximumBackoff": "1s"}
    await rest.create_subscription("patient", retryPolicy=policy)
    await rest.publish("again")
    (first,) = await rest.pull("patient")
    began = time.monotonic()
    await rest.modify_ack_deadline([first], 0, "patient")
    second = await back(rest, began, "patient")
    assert second["message"] == first["message"]


@pytest.mark.slow
async def test_a_waiting_pull_ends_empty_before_clients_give_up(rest: Rest, subscription: str) -> None:
    """A7: official clients wait 60 s; Google's emulator answers after 89."""
    async with asyncio.timeout(55):
        assert await rest.ok("POST", f"{subscription}:pull", {"maxMessages": 1}) == {}
