"""Lists of messages that show the beginning of each body, and the body of one message by itself."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.log.log_page import LogPosition
from broker.core.log.messages import append_messages, encode_messages
from broker.core.log.published import list_published
from broker.features.dead_letters.dead_letter_list import DeadLetterPage
from broker.features.dead_letters.rows import AskedDeadLetters, list_dead_letters
from broker.features.inspect.byte_range import ByteRange, parse_range
from broker.features.inspect.topic_page import ORDERS, TopicPage
from broker.features.inspect.topic_rows import Asked, list_topic_messages
from broker.model.message import NewMessage
from broker.model.message_preview import WHOLE, preview_cost
from tests.features.inspect.test_backlog_messages import Listed
from tests.fixtures.broker import Json, Rest, eventually, message, text
from tests.fixtures.dead_letters import make_dead_letters
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log

LONG = "0123456789" * 1000


# --- over REST ----------------------------------------------------------------------------------------------


def _shown(entries: list[Json]) -> list[tuple[str, int]]:
    return [(text(entry), entry["dataSize"]) for entry in entries]


async def test_every_list_of_messages_shows_as_much_of_the_data_as_is_asked_for(rest: Rest) -> None:
    await rest.create_topic(extensions={"delay": True})
    await rest.create_topic("failed")
    await rest.create_subscription("mortuary", topic="failed")
    policy = {"deadLetterTopic": rest.topic("failed"), "maxDeliveryAttempts": 5}
    await rest.create_subscription(deadLetterPolicy=policy)
    await rest.publish(LONG, "short", message("", {"a": "b"}))
    [later] = await rest.publish(message(LONG, {"broker-delay": "3600s"}))
    [failed, *_] = await rest.pull(max_messages=1)
    await rest.ok("POST", f"{rest.subscription()}:reject", {"ackIds": [failed["ackId"]]})

    async def list_dead_letters() -> Any:
        return (await rest.ok("GET", f"{rest.subscription()}/deadLetters", params={"previewBytes": 4}))[
            "deadLetters"
        ]

    assert _shown(await eventually(list_dead_letters)) == [("0123", 10_000)]
    lists = {f"{rest.topic()}/messages": ["", "short", LONG], f"{rest.subscription()}/messages": ["short", ""]}
    for path, whole in lists.items():
        for preview in (0, 4, 5, 100_000):
            entries = (await rest.ok("GET", path, params={"previewBytes": preview}))["messages"]
            assert _shown(entries) == [(data[:preview], len(data)) for data in whole]
        assert [text(entry) for entry in (await rest.ok("GET", path))["messages"]] == whole
    shown = await rest.ok(
        "GET", f"{rest.topic()}/messages/{failed['message']['messageId']}", params={"previewBytes": 4}
    )
    assert (text(shown), shown["dataSize"]) == ("0123", 10_000)
    shown = await rest.ok("GET", f"{rest.topic()}/messages/{later}", params={"previewBytes": 4})
    assert (text(shown), shown["dataSize"]) == ("0123", 10_000)
    [scheduled] = (await rest.ok("GET", f"{rest.topic()}/scheduled"))["scheduledMessages"]
    assert ("data" in scheduled, scheduled["dataSize"]) == (False, 10_000)
    listed = await rest.ok("GET", f"{rest.topic()}/scheduled", params={"previewBytes": 4})
    assert [base64.b64decode(each["data"]) for each in listed["scheduledMessages"]] == [b"0123"]


async def test_a_preview_that_cannot_be_is_refused_by_name(rest: Rest) -> None:
    await rest.create_topic()
    for value in ("-1", "many", "3000000000"):
        code, why = await rest.error("GET", f"{rest.topic()}/messages", params={"previewBytes": value})
        assert (code, "previewBytes" in why, value in why) == ("INVALID_ARGUMENT", True, True)
    code, why = await rest.error("GET", f"{rest.topic()}/scheduled", params={"previewBytes": 10_001})
    assert (code, "previewBytes=10001" in why) == ("INVALID_ARGUMENT", True)


async def test_the_data_of_a_message_comes_as_a_file_that_no_browser_shows(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    [page] = await rest.publish("<script>alert(1)</script>")
    path = f"{rest.topic()}/messages/{page}:data"
    answer = await rest.call("GET", path)
    assert (answer.status_code, answer.content) == (200, b"<script>alert(1)</script>")
    headers = answer.headers
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"] == f"attachment; filename={page}.bin"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["accept-ranges"] == "bytes"
    for given_range, status, data, content_range in (
        ("bytes=0-7", 206, b"<script>", "bytes 0-7/25"),
        ("bytes=16-", 206, b"</script>", "bytes 16-24/25"),
        ("bytes=20-9999", 206, b"ript>", "bytes 20-24/25"),
        ("bytes=-5", 206, b"ript>", "bytes 20-24/25"),
        ("bytes=25-", 416, b"", "bytes */25"),
        ("bytes=-0", 416, b"", "bytes */25"),
        ("bytes=5-2", 200, answer.content, None),
        ("bytes=0-1,3-4", 200, answer.content, None),
        ("lines=0-1", 200, answer.content, None),
    ):
        ranged = await rest.call("GET", path, headers={"range": given_range})
        found = (ranged.status_code, ranged.content, ranged.headers.get("content-range"))
        assert found == (status, data, content_range), given_range
    await rest.create_topic("other")
    [of_other] = await rest.publish("x", topic="other")
    assert (await rest.error("GET", f"{rest.topic()}/messages/{of_other}:data"))[0] == "NOT_FOUND"
    assert (await rest.error("GET", f"{rest.topic()}/messages/odd:data"))[0] == "INVALID_ARGUMENT"
    assert (await rest.error("GET", f"{rest.topic('none')}/messages/{page}:data"))[0] == "NOT_FOUND"


async def test_the_data_of_a_message_that_waits_for_its_time_can_be_read(rest: Rest) -> None:
    await rest.create_topic(extensions={"delay": True})
    [later] = await rest.publish(message("later", {"broker-delay": "3600s"}))
    answer = await rest.call("GET", f"{rest.topic()}/messages/{later}:data", headers={"range": "bytes=1-2"})
    assert (answer.status_code, answer.content) == (206, b"at")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"bytes=0-0", ByteRange(0, 1)),
        (b" Bytes=3-", ByteRange(3)),
        (b"bytes=-7", ByteRange(None, 7)),
        (b"bytes=999999999999999999-", ByteRange(WHOLE - 1)),
        (b"bytes=-", None),
        (b"bytes=2-1", None),
        (b"", None),
    ],
)
def test_a_range_is_one_run_of_bytes_or_none(header: bytes, expected: ByteRange | None) -> None:
    assert parse_range(header) == expected


# --- in the database ----------------------------------------------------------------------------------------

_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


def _asked(log: Log, **page: Any) -> Asked:
    return Asked(
        shard_ids=[log.shard_id],
        filter_path=None,
        retained_since=log.start - SECOND,
        now=log.start,
        page=TopicPage(1000, **page),
    )


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    requests=st.lists(
        st.lists(
            st.tuples(st.binary(max_size=2000), st.dictionaries(_TEXT, _TEXT, max_size=3)), min_size=1, max_size=4
        ),
        min_size=1,
        max_size=3,
    ),
    preview_bytes=st.sampled_from([0, 1, 7, 100, WHOLE]),
)
async def test_data_sizes_are_right_without_a_look_at_the_data(
    log: Log, requests: list[list[tuple[bytes, dict[str, str]]]], preview_bytes: int
) -> None:
    """The size of a batch has its attributes as PostgreSQL prints them."""
    await log.execute("DELETE FROM message_batches")
    messages = [NewMessage(data=data, attributes=attributes) for of in requests for data, attributes in of]
    encoded = [encode_messages([NewMessage(data=d, attributes=a) for d, a in of]) for of in requests]
    async with log.session() as session:
        await append_messages(session, shard_id=log.shard_id, requests=encoded, now=log.start)
        expected = [(each.data[:preview_bytes], len(each.data)) for each in messages]
        for order in ORDERS:
            page = await list_topic_messages(session, _asked(log, order=order, preview_bytes=preview_bytes))
            found = [(each.data, each.data_size) for each in page.found]
            assert found == (expected if order == "oldest" else expected[::-1])


async def test_a_page_of_previews_has_many_large_messages_and_the_database_sends_little(log: Log) -> None:
    await _publish_large(log, 30)
    async with log.session() as session:
        whole = await list_topic_messages(session, _asked(log))
        assert len(whole.found) == 10  # as many as a response may have
        page = await list_topic_messages(session, _asked(log, preview_bytes=100))
        assert (len(page.found), page.rest) == (30, None)
        assert {(len(each.data or b""), each.data_size) for each in page.found} == {(100, 1_000_000)}


async def test_a_page_ends_when_it_has_read_ten_times_what_a_response_may_have(log: Log) -> None:
    """The store has one large body, of which all messages say that they had it."""
    await _publish_large(log, 3)
    await log.execute("UPDATE message_batches SET size = 60000000")
    async with log.session() as session:
        page = await list_topic_messages(session, _asked(log, preview_bytes=100))
        assert (len(page.found), page.rest is not None) == (2, True)
        none = await list_topic_messages(session, _asked(log, preview_bytes=0))
        assert (len(none.found), none.rest) == (3, None)  # nothing of them is read


@pytest.mark.parametrize("order", ORDERS)
async def test_a_search_of_a_topic_reads_so_many_bytes_a_call_and_says_how_far_it_is(log: Log, order: str) -> None:
    for n in range(5):
        await log.publish("x" * 10_000 + ("needle" if n == 2 else ""), now=log.start + n * SECOND)
    await log.execute("UPDATE message_batches SET size = 60000000")
    found, searched, start, pages = [], [], None, 0
    async with log.session() as session:
        while pages == 0 or start is not None:
            asked = _asked(log, order=order, contains="needle", preview_bytes=3, start=start)
            page = await list_topic_messages(session, replace(asked, now=log.start + 9 * SECOND))
            assert page.progress is not None
            found += page.found
            searched.append(page.progress.searched)
            start, pages = page.rest, pages + 1
    assert [each.data for each in found] == [b"xxx"]
    assert pages == 3
    assert searched == sorted(searched)
    assert searched[-1] == page.progress.total == 5


async def test_a_backlog_of_large_messages_is_listed_by_previews_in_each_state(log: Log) -> None:
    await _publish_large(log, 12)
    await log.pull(12)
    await _publish_large(log, 12)
    listed = Listed(log)
    assert len((await listed.page()).found) == 10
    page = await listed.page(preview_bytes=3)
    assert (len(page.found), page.rest) == (24, None)
    assert {(each.data, each.data_size) for each in page.found} == {(b"xxx", 1_000_000)}


async def test_a_search_in_a_backlog_of_large_messages_goes_on_in_the_next_page(log: Log) -> None:
    await _publish_large(log, 3)
    await log.pull(3)
    await log.execute("UPDATE message_batches SET size = 60000000")
    listed = Listed(log)
    first = await listed.page(contains="needle", preview_bytes=0)
    assert (first.found, first.rest is not None) == ([], True)
    assert first.rest is not None
    second = await listed.page(contains="needle", preview_bytes=0, start=first.rest)
    assert (second.found, second.rest) == ([], None)


async def test_dead_letters_of_large_messages_are_listed_by_previews(log: Log) -> None:
    dead_letters = await make_dead_letters(log)
    await dead_letters.give_up(*["x" * 1_000_000] * 12)
    found = {}
    async with log.session() as session:
        for preview_bytes in (WHOLE, 3, 0):
            asked = AskedDeadLetters(
                subscription_id=log.subscription.subscription_id,
                shard_ids=[log.shard_id],
                filter_path=None,
                body_path=None,
                page=DeadLetterPage(100, preview_bytes=preview_bytes),
                now=log.start + ACK_DEADLINE,
            )
            found[preview_bytes] = (await list_dead_letters(session, asked)).found
    assert (len(found[WHOLE]), len(found[3]), len(found[0])) == (10, 12, 12)
    assert {(each.data, each.data_size) for each in found[3]} == {(b"xxx", 1_000_000)}


async def test_a_tail_reads_previews(log: Log) -> None:
    await _publish_large(log, 3)
    async with log.session() as session:
        start = LogPosition(log.shard_id, log.start, -1)
        messages, _ = await list_published(session, after=start, filter_path=None, preview_bytes=3)
        assert [(each.data, each.data_size) for each in messages] == [(b"xxx", 1_000_000)] * 3
        messages, _ = await list_published(session, after=start, filter_path=None)
        assert len(messages) == 1


async def _publish_large(log: Log, count: int) -> None:
    for _ in range(count):
        await log.publish("x" * 1_000_000)


@pytest.mark.parametrize(("size", "preview", "cost"), [(100, WHOLE, 100), (100, 0, 0), (100, 10, 19), (5, 10, 5)])
def test_what_is_read_and_not_shown_counts_a_tenth(size: int, preview: int, cost: int) -> None:
    assert preview_cost(size, preview) == cost


async def test_a_preview_does_not_change_whether_a_message_matches_a_filter_of_its_body(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription("large", filter="body.total > 100")
    await rest.create_subscription("small", filter="body.total <= 100")
    [message_id] = await rest.publish('{"total": 200}')
    expected = {rest.subscription("large"): "WAITING", rest.subscription("small"): "FILTERED"}
    for size in (0, 3, 100):
        found = await rest.ok("GET", f"{rest.project}/messages/{message_id}?previewBytes={size}")
        assert {one["subscription"]: one["state"] for one in found["subscriptions"]} == expected, size
        assert (text(found["message"]), found["dataSize"]) == ('{"total": 200}'[:size], 14)
    for name, state in expected.items():
        assert (await rest.ok("GET", f"{name}/messages/{message_id}"))["state"] == state
