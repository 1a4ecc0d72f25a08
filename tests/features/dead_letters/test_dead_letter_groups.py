"""What a subscription has given up, in groups and in pages, over REST; extensions (G2)."""

from dataclasses import dataclass
from typing import Any

import pytest

from broker.app.broker import Broker
from tests.fixtures.broker import Json, Rest, message, text


@dataclass
class Given:
    """A subscription whose dead letters lie in `pile` and `copy`."""

    broker: Broker
    rest: Rest

    async def give_up(self, *texts: str, how: str = "reject", env: str = "") -> list[str]:
        """Publish and give up; the ids that the messages had."""
        ids = await self.rest.publish(*(message(each, {"env": env} if env else None) for each in texts))
        received = await self.rest.pull()
        if how == "reject":
            body = {"ackIds": [each["ackId"] for each in received]}
            await self.rest.ok("POST", f"{self.rest.subscription()}:reject", body)
        else:
            await self.rest.modify_ack_deadline(received, 0)
        while await self.broker.workers["dead-letter forwarder"].run_once():
            pass
        return ids

    async def ask(self, **params: Any) -> Json:
        return await self.rest.ok("GET", f"{self.rest.subscription()}/deadLetters", params=params)

    async def groups(self, by: str, **params: Any) -> dict[str, int]:
        return {group["key"]: group["count"] for group in (await self.ask(groupBy=by, **params)).get("groups", [])}


pytestmark = pytest.mark.own_broker(min_delivery_attempts=1)


@pytest.fixture
async def given(broker: Broker, rest: Rest) -> Given:
    await rest.create_topic()
    await rest.create_topic("letters")
    await rest.create_subscription("pile", "letters")
    await rest.create_subscription("copy", "letters", enableMessageOrdering=True)
    policy = {"deadLetterTopic": rest.topic("letters"), "maxDeliveryAttempts": 1}
    await rest.create_subscription(deadLetterPolicy=policy, enableMessageOrdering=True)
    return Given(broker, rest)


async def test_dead_letters_are_counted_by_what_they_have_in_common(given: Given) -> None:
    [first, *_] = await given.give_up("a", "b", "c", env="prod")
    await given.give_up("d", how="nack", env="prod")
    await given.give_up("e", env="test")
    await given.give_up("f")
    answer = await given.ask(groupBy="reason")
    assert [(g["key"], g["count"]) for g in answer["groups"]] == [("reject", 5), ("nack", 1)]
    assert answer["groups"][0]["firstMessageId"] == first
    assert (answer["deadLetterCount"], answer["settledDeadLetterCount"], "atLeast" in answer) == (6, 0, False)
    assert await given.groups("attribute:env") == {"prod": 4, "test": 1, "": 1}
    assert await given.groups("attribute:env", reason="nack") == {"prod": 1}
    assert await given.groups("status") == {"": 6}
    [hour] = await given.groups("hour")
    assert await given.groups("reason", hour=hour, **{"attribute:env": "prod"}) == {"reject": 3, "nack": 1}
    assert await given.groups("reason", hour="2000-01-01T00") == {}
    assert await given.groups("reason", filter='attributes.env = "test"') == {"reject": 1}
    async with given.broker.core.database.connection() as connection:
        await connection.execute(b"UPDATE dead_letters SET reason = 'push 503' WHERE reason = 'nack'")
    assert await given.groups("status") == {"": 5, "503": 1}
    assert [text(m) for m in (await given.ask(status="503"))["deadLetters"]] == ["d"]


async def test_the_dead_letters_of_a_group_come_in_pages_with_what_they_were(given: Given) -> None:
    ids = await given.give_up("a", "b", "c", env="prod")
    await given.give_up("d", how="nack")
    dead_letters, token = list[Json](), ""
    while not dead_letters or token:
        page = await given.ask(reason="reject", pageSize=2, **({"pageToken": token} if token else {}))
        assert len(page["deadLetters"]) <= 2
        dead_letters += page["deadLetters"]
        token = page.get("nextPageToken", "")
    assert [(text(dead_letter), dead_letter["sourceMessageId"]) for dead_letter in dead_letters] == list(
        zip("abc", ids, strict=True)
    )
    assert dead_letters[0] == dead_letters[0] | {
        "deadLetterTopic": given.rest.topic("letters"),
        "subscriptions": sorted(given.rest.subscription(name) for name in ("pile", "copy")),
        "deliveryAttempts": 1,
        "reason": "reject",
    }
    assert dead_letters[0]["message"]["attributes"]["env"] == "prod"


async def test_what_nobody_holds_any_more_is_not_counted_and_what_is_out_is(given: Given) -> None:
    await given.give_up("a", "b")
    received = await given.rest.pull("pile")
    await given.rest.acknowledge(received[:1], "pile")
    assert await given.groups("reason") == {"reject": 2}, "the other one holds both"
    [dead_letter] = [x for x in (await given.ask())["deadLetters"] if text(x) == text(received[0])]
    assert dead_letter["subscriptions"] == [given.rest.subscription("copy")]
    await given.rest.drain("copy")
    assert await given.groups("reason") == {"reject": 1}, "which is out of the pile"
    await given.rest.acknowledge(received[1:], "pile")
    answer = await given.ask(groupBy="reason")
    assert (answer["groups"], answer["settledDeadLetterCount"]) == ([], 2)


async def test_dead_letters_that_wait_for_their_keys_are_held(given: Given) -> None:
    keyed = [message(each, orderingKey="k") for each in "abc"]
    await given.rest.publish(*keyed)
    for _ in "abc":
        await given.rest.modify_ack_deadline(await given.rest.pull(max_messages=1), 0)
        while await given.broker.workers["dead-letter forwarder"].run_once():
            pass
    await given.give_up("d")
    await given.rest.drain("pile")
    assert [text(m) for _ in "ad" for m in await given.rest.pull("copy", 1)] == ["a", "d"], "b and c wait for a"
    dead_letters = (await given.ask())["deadLetters"]
    assert [(text(x), x["message"].get("orderingKey")) for x in dead_letters] == [
        ("a", "k"),
        ("b", "k"),
        ("c", "k"),
        ("d", None),
    ]


async def test_what_cannot_be_asked_is_refused_by_name(given: Given) -> None:
    path = f"{given.rest.subscription()}/deadLetters"
    for params, named in (
        ({"groupBy": "colour"}, "groupBy=colour"),
        ({"groupBy": "attribute:"}, "groupBy=attribute:"),
        ({"pageToken": "x"}, "page_token=x"),
        ({"filter": "?"}, "filter"),
    ):
        code, why = await given.rest.error("GET", path, params=params)
        assert (code, named in why) == ("INVALID_ARGUMENT", True)
    assert (await given.rest.error("GET", f"{given.rest.subscription('none')}/deadLetters"))[0] == "NOT_FOUND"
