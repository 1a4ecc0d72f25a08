"""Requests of gRPC read without decoding: the name of their resource, and how many elements they have."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.api.generated.messages import request_of
from broker.api.grpc.elements import FEW, LIMITS, OTHER_LIMIT, check_elements
from broker.api.grpc.wire import MAX_BEFORE_NAME, find_text
from broker.model.errors import InvalidArgument
from tests.fixtures.registered import METHODS

TOPIC = "projects/p/topics/orders"
GOOGLES = [method.rpc.name for method in METHODS if method.service.startswith("google.")]


def _lists(rpc: str) -> Iterator[tuple[list[Any], Any]]:
    """The lists and maps of a method's requests: the fields that lead to them, and they themselves."""
    left: list[tuple[list[Any], Any, frozenset[str]]] = [([], request_of(rpc).DESCRIPTOR, frozenset())]
    while left:
        path, descriptor, seen = left.pop()
        for field in descriptor.fields:
            message = field.message_type
            if field.is_repeated:
                yield path, field
            is_map = message is not None and message.GetOptions().map_entry
            if message is not None and not is_map and message.full_name not in seen:
                left.append(([*path, field], message, seen | {message.full_name}))


def _holding(path: list[Any], field: Any, count: int) -> bytes:
    """A request in which the field has so many elements, and with bytes that are none."""
    if field.is_packed:
        body = _tagged(field.number, b"\x80\x02" * count)
    else:
        element = _tagged(field.number, b"")
        body = element * count
    for each in reversed(path):
        body = _tagged(each.number, body)
    return body + _tagged(1_000, b"x" * 2 * FEW)


def _tagged(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


@pytest.mark.parametrize("rpc", GOOGLES)
def test_every_list_of_a_request_has_a_limit_that_is_checked_before_it_is_decoded(rpc: str) -> None:
    request_class = request_of(rpc)
    for path, field in _lists(rpc):
        limit = LIMITS.get(field.full_name, OTHER_LIMIT)
        body = _holding(path, field, max(limit, FEW) + 1)
        with pytest.raises(InvalidArgument, match=f"{field.name} has more than {limit} elements"):
            for _ in check_elements(request_class, body):
                pass
        if limit > FEW:
            for _ in check_elements(request_class, _holding(path, field, limit)):
                pass


def test_a_request_with_as_much_as_it_may_have_is_not_refused() -> None:
    full = request_of("Publisher.Publish")(
        topic=TOPIC, messages=[{"attributes": {f"key-{n}": "v" for n in range(100)}, "data": b"\x12" * 20}] * 1_000
    ).SerializeToString()
    costs = list(check_elements(request_of("Publisher.Publish"), full))
    assert len(costs) > 50, "in steps"


def test_the_limits_are_of_lists_that_there_are() -> None:
    names = {field.full_name for rpc in GOOGLES for _, field in _lists(rpc)}
    assert set(LIMITS) <= names


@pytest.mark.parametrize("rpc", GOOGLES)
def test_the_name_of_the_resource_is_found_where_the_decoder_finds_it(rpc: str) -> None:
    request = request_of(rpc)()
    first = request.DESCRIPTOR.fields_by_number[1]
    holder, path = request, (1,) if first.message_type is None else (1, 1)
    if first.message_type is not None:
        holder = getattr(request, first.name)
    setattr(holder, holder.DESCRIPTOR.fields_by_number[1].name, TOPIC)
    assert find_text(request.SerializeToString(), path) == TOPIC


@given(st.binary(max_size=300))
def test_no_bytes_are_read_beyond_their_end(body: bytes) -> None:
    for path in ((1,), (1, 1), (2,)):
        find_text(body, path)
    for _ in check_elements(request_of("Publisher.Publish"), body + b"\x12\x00" * 10):
        pass


def test_a_name_that_is_cut_off_is_not_found() -> None:
    whole = request_of("Publisher.Publish")(topic=TOPIC).SerializeToString()
    assert find_text(whole, (1,)) == TOPIC
    assert [find_text(whole[:size], (1,)) for size in range(len(whole))] == [None] * len(whole)


def test_a_name_behind_very_many_fields_is_refused() -> None:
    name = request_of("Publisher.Publish")(topic=TOPIC).SerializeToString()
    assert find_text(b"\x12\x00" * (MAX_BEFORE_NAME - 1) + name, (1,)) == TOPIC
    with pytest.raises(InvalidArgument, match="must be first"):
        find_text(b"\x12\x00" * MAX_BEFORE_NAME + name, (1,))


def test_messages_that_are_nested_without_end_are_left_to_the_decoder() -> None:
    body = b""
    for _ in range(200):
        body = _tagged(1, _tagged(3, body) if body else b"")  # of a google.protobuf.Struct in a Value
    for _ in check_elements(request_of("Publisher.UpdateTopic"), body + _tagged(1_000, b"\x0a" * 4 * FEW)):
        pass


def test_what_has_too_many_elements_is_named_by_its_place() -> None:
    messages = [{"data": b"x"}, {"attributes": {f"{number}": "" for number in range(FEW + 1)}}]
    body = request_of("Publisher.Publish")(topic=TOPIC, messages=messages).SerializeToString()
    with pytest.raises(InvalidArgument, match=r"^messages\[1\]\.attributes has more than 100 elements"):
        for _ in check_elements(request_of("Publisher.Publish"), body):
            pass
