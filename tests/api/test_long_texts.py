"""Large bodies of publishes are read in steps: the same comes of them, in no step too much at a time (M1)."""

import json
import tracemalloc
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.api.rest.codec.long_texts import BLOCK, without_long_texts
from broker.api.steps import STEP_COST, Steps, cut
from broker.core.log.messages import append_statements, encode_messages
from broker.core.publishing.rest import decode_large_publish, decode_publish
from broker.core.pulling.pull_rest import encode_large_pull_response, encode_pull_response
from broker.model.delivery import Delivery, StoredMessage
from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.subscription import Subscription
from broker.net.limits.payload import MAX_PAYLOAD_BYTES

R = TypeVar("R")


_SUBSCRIPTION = Subscription(subscription_id=1, name="projects/p/subscriptions/s", topic="projects/p/topics/t")


def _run(steps: Steps[R]) -> tuple[R, list[int]]:
    """What comes of them, and what each cost."""
    costs = []
    while True:
        try:
            costs.append(next(steps))
        except StopIteration as end:
            return end.value, costs


def _outcome(decode: Callable[[bytes], list[NewMessage]], body: bytes) -> list[NewMessage] | str:
    try:
        return decode(body)
    except InvalidArgument as error:
        return error.message


def _in_steps(body: bytes) -> list[NewMessage]:
    return _run(decode_large_publish(body))[0]


_SIZES = st.one_of(st.integers(0, 40), st.integers(BLOCK - 8, 5 * BLOCK))
_TEXTS = st.builds(
    lambda size, encode: encode(bytes(range(256)) * (size // 256 + 1))[:size].decode(),
    _SIZES,
    st.sampled_from((b64encode, urlsafe_b64encode)),
)
_ODD = st.sampled_from(("", "=", "==", "\\", '"', "/", "é", " " * BLOCK, "\n", "A"))
_DATA = st.one_of(
    st.builds(lambda size: b64encode(b"x" * size).decode(), _SIZES),
    st.builds(lambda before, odd, after: before + odd + after, _TEXTS, _ODD, _TEXTS),
)
_MESSAGES = st.lists(
    st.dictionaries(
        st.sampled_from(("data", "orderingKey", "messageId", "attributes", "what")),
        st.one_of(_DATA, st.dictionaries(_DATA, _DATA, max_size=2)),
        max_size=3,
    ),
    max_size=4,
)
_PLAIN = st.lists(st.builds(lambda size: {"data": b64encode(b"xyz" * size).decode()}, _SIZES), max_size=5)


@given(messages=st.one_of(_PLAIN, _MESSAGES), separators=st.sampled_from(((",", ":"), (" " * BLOCK + ",", ": "))))
def test_in_steps_comes_what_comes_at_once(messages: list[object], separators: tuple[str, str]) -> None:
    """Also what is wrong with it."""
    body = json.dumps({"messages": messages}, separators=separators).encode()
    for each in (body, body.replace(b"/", b"\\/"), body[:-1], body[: len(body) // 2]):
        assert _outcome(_in_steps, each) == _outcome(decode_publish, each)


def test_no_step_of_a_large_body_is_long() -> None:
    data = [b"x" * 7_300_000, b"y" * 100, b"z" * 40_000, b""]
    messages = [{"data": b64encode(each).decode(), "attributes": {"a": "b"}} for each in data]
    body = json.dumps({"messages": messages}).encode()
    assert len(body) < MAX_PAYLOAD_BYTES
    messages_of, costs = _run(decode_large_publish(body))
    assert [message.data for message in messages_of] == data
    assert max(costs) <= STEP_COST
    assert sum(costs) >= len(body) - STEP_COST


def test_a_large_body_is_copied_as_seldom_as_may_be() -> None:
    """A fresh block of its size takes the event loop for some milliseconds: one is decoded into, one is sent."""
    size = 7_300_000
    body = json.dumps({"messages": [{"data": b64encode(b"x" * size).decode()}]}).encode()
    messages, most = _most_held(lambda: _in_steps(body))
    assert size <= most < 1.5 * size
    batch, most = _most_held(lambda: encode_messages(messages))
    assert most < size / 100
    (_, (_, parameters)), most = _most_held(lambda: append_statements(1, [batch], datetime(2026, 1, 1, tzinfo=UTC)))
    assert size <= most < 1.5 * size
    assert parameters["data"].endswith(b"x" * size)


def _most_held(made: Callable[[], R]) -> tuple[R, int]:
    """What is made, and how many bytes it took at a time."""
    tracemalloc.start()
    try:
        return made(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_text_of_many_blocks_is_taken_out() -> None:
    text = b64encode(b"x" * 5 * BLOCK)
    (rest, texts), _ = _run(without_long_texts(b'{"data":"%b"}' % text))
    assert list(texts.values()) == [b"x" * 5 * BLOCK]
    assert len(rest) < 100


@pytest.mark.parametrize("counts", [(1_000,), (1,) * 1_000, (30, 700, 270)])
@pytest.mark.parametrize("size", [1, 3_000, STEP_COST // 2])
def test_no_step_of_a_large_answer_is_long(counts: tuple[int, ...], size: int) -> None:
    """A step is of at most so many messages or bytes; what is larger alone has a step of its own."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    deliveries = [
        Delivery(1, attempt, 1, [StoredMessage(n, now, None, "{}", b"x" * size) for n in range(count)])
        for attempt, count in enumerate(counts)
    ]
    parts = list(cut(deliveries))
    assert max(cost for cost, _ in parts) <= STEP_COST
    assert len(parts) > 1 or size == 1
    whole = [delivery.messages[start:end] for _, part in parts for delivery, start, end in part]
    assert [len(d.messages) for d in deliveries if d.messages] == [
        sum(end - start for _, part in parts for d, start, end in part if d is delivery) for delivery in deliveries
    ]
    assert sum(map(len, whole)) == 1_000


def test_a_large_answer_is_what_it_would_be_at_once() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    messages = [StoredMessage(n, now, None, '{"a": "b"}', b"x" * (n % 7) * 2_000) for n in range(700)]
    deliveries = [
        Delivery(1, 1, 1, messages[:600]),
        *(Delivery(1, n, 2, messages[n : n + 1]) for n in range(600, 700)),
    ]
    answer, costs = _run(encode_large_pull_response(_SUBSCRIPTION, deliveries))
    assert answer == encode_pull_response(_SUBSCRIPTION, deliveries)
    assert len(costs) > 3
