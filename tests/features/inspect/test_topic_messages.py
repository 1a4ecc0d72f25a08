"""What a topic retains, page by page (F3)."""

from typing import Any

from broker.app.broker import Broker
from broker.app.config import AppConfig
from tests.fixtures.broker import Json, Rest, message, text
from tests.fixtures.in_process import running_in_process


async def _all(rest: Rest, **query: Any) -> list[Json]:
    """Of all pages."""
    listed: list[Json] = []
    token = ""
    while True:
        page = await rest.ok("GET", f"{rest.topic()}/messages", params=query | {"pageToken": token})
        listed += page["messages"]
        token = page.get("nextPageToken", "")
        if not token:
            return listed


def _texts(messages: list[Json]) -> list[str]:
    return [text(m) for m in messages]


async def test_messages_are_listed_newest_first_or_oldest_first_and_nothing_is_handed_out(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    ids = await rest.publish(*(message(str(n), {"n": str(n)}) for n in range(5)))
    listed = await _all(rest, pageSize=2)
    assert [m["messageId"] for m in listed] == ids[::-1]
    assert (_texts(listed), listed[0]["attributes"]) == (["4", "3", "2", "1", "0"], {"n": "4"})
    assert _texts(await _all(rest, order="oldest", pageSize=2)) == ["0", "1", "2", "3", "4"]
    assert len(await rest.pull(max_messages=10)) == 5
    assert len(await _all(rest)) == 5  # they are out, and later acked, and retained all the same


async def test_a_filter_a_key_and_times_choose(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish(message("1", {"env": "prod"}), message("2", {"env": "test"}))
    await rest.publish({"orderingKey": "k"} | message("3", {"env": "prod"}))
    first, second, third = (m["publishTime"] for m in await _all(rest, order="oldest"))
    assert _texts(await _all(rest, filter='attributes.env = "prod"', order="oldest")) == ["1", "3"]
    assert _texts(await _all(rest, orderingKey="k")) == ["3"]
    for order in ("newest", "oldest"):
        assert {text(m) for m in await _all(rest, startTime=third, order=order)} == {"3"}
        assert {text(m) for m in await _all(rest, endTime=third, order=order)} == {"1", "2"}
    assert first == second < third


async def test_a_text_in_the_body_chooses_and_a_search_says_how_far_it_has_got(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("ärger", message("n-1", {"env": "prod"}), "n-2", "other", "n-3")
    assert _texts(await _all(rest, contains="n-", order="oldest")) == ["n-1", "n-2", "n-3"]
    assert _texts(await _all(rest, contains="ä")) == ["ärger"]
    assert _texts(await _all(rest, contains="n-", filter='attributes.env = "prod"')) == ["n-1"]
    assert _texts(await _all(rest, contains="nowhere")) == []
    path = f"{rest.topic()}/messages"
    done = (await rest.ok("GET", path, params={"contains": "n-"}))["progress"]
    assert (done["searchedMessagesEstimate"], done["totalMessagesEstimate"]) == (5, 5)
    first = await rest.ok("GET", path, params={"contains": "n-", "pageSize": 1})
    assert "nextPageToken" in first
    assert first["progress"]["searchedTime"] == first["messages"][0]["publishTime"]
    assert "progress" not in await rest.ok("GET", path)


async def test_messages_of_several_shards_come_in_one_order(clone: Any) -> None:
    with clone() as database_url:
        broker = Broker(AppConfig(database_url=database_url, shards_per_topic=3, pool_size=4))
        async with running_in_process(broker) as client:
            rest = Rest(client, "projects/several")
            await rest.create_topic()
            await rest.create_subscription()
            ids = []
            for n in range(20):
                ids += await rest.publish({"orderingKey": f"k{n % 7}"} | message(str(n)))
            for order in ("newest", "oldest"):
                listed = await _all(rest, order=order, pageSize=3)
                times = [m["publishTime"] for m in listed]
                assert times == sorted(times, reverse=order == "newest")
                assert {m["messageId"] for m in listed} == set(ids)
                assert len(listed) == 20


async def test_what_cannot_be_listed_is_refused(rest: Rest) -> None:
    await rest.create_topic()
    for query, named in (
        ({"order": "best"}, "order=best"),
        ({"startTime": "yesterday"}, "startTime"),
        ({"filter": "attributes."}, "filter"),
        ({"pageToken": "x"}, "x"),
        ({"pageSize": -1}, "-1"),
        ({"contains": "x" * 1001}, "1001 characters"),
    ):
        answer = await rest.call("GET", f"{rest.topic()}/messages", params=query)
        assert (answer.status_code, named in answer.text) == (400, True), answer.text
    other = await rest.call("GET", f"{rest.topic('nothing')}/messages")
    assert other.status_code == 404
