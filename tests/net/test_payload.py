"""What is compressed is read to its end and no further than to the limit."""

import gzip
import random
import zlib

import pytest

from broker.model.errors import BrokerError, Internal, InvalidArgument
from broker.net.limits.payload import (
    FREE_BYTES,
    MAX_MEMBERS,
    MAX_PAYLOAD_BYTES,
    MAX_RATIO,
    beginning_of,
    decompress,
)

randbytes = random.Random(8).randbytes
HALF = MAX_PAYLOAD_BYTES // 2


def read(payload: bytes, most: int = MAX_PAYLOAD_BYTES) -> bytes:
    return in_steps(payload, most)[0]


def in_steps(payload: bytes, most: int = MAX_PAYLOAD_BYTES) -> tuple[bytes, list[int], list[int]]:
    """What it becomes, what each step was said to cost, and how many bytes each step made."""
    made: list[int] = []
    costs: list[int] = []
    steps = decompress(payload, Internal, "It is not valid gzip", most=most, grown=made.append)
    while True:
        try:
            costs.append(next(steps))
        except StopIteration as end:
            return end.value, costs, made


@pytest.mark.parametrize("parts", [1, 2, 3, 1_000])
@pytest.mark.parametrize("size", [0, 1, 700, 5_000])
def test_all_members_of_gzip_are_read(parts: int, size: int) -> None:
    """RFC 1952, 2.2: what is compressed in parts is one file."""
    texts = [bytes([index % 256]) * size for index in range(parts)]
    assert read(b"".join(map(gzip.compress, texts))) == b"".join(texts)


def test_zlib_is_read_too() -> None:
    assert read(zlib.compress(b"text" * 10_000)) == b"text" * 10_000


def test_the_limit_is_that_of_all_members_together() -> None:
    half = gzip.compress(randbytes(HALF // 10) * 10, compresslevel=1)
    assert len(read(half + half)) == MAX_PAYLOAD_BYTES
    with pytest.raises(InvalidArgument, match="exceeds the limit"):
        read(half + half + gzip.compress(b"x"))


def test_a_large_payload_is_decompressed_in_steps_that_say_what_they_cost() -> None:
    text = randbytes(100_000) * 50
    plain, costs, made = in_steps(gzip.compress(text, compresslevel=1))
    assert plain == text
    assert sum(made) == len(text)
    assert len(costs) == len(made) - 1 > 10
    assert all(size <= cost for size, cost in zip(made[1:], costs, strict=True))
    assert made[0] <= 16_384


def test_a_small_payload_waits_for_no_turn() -> None:
    assert in_steps(gzip.compress(b"x" * 12_000))[1] == []


def test_the_limit_of_a_call_holds_for_what_it_becomes() -> None:
    assert read(gzip.compress(b"x" * 65_536), most=65_536) == b"x" * 65_536
    with pytest.raises(InvalidArgument, match="exceeds the limit: 65536 bytes"):
        read(gzip.compress(b"x" * 65_537), most=65_536)


def test_a_payload_that_becomes_far_larger_is_refused_by_its_ratio() -> None:
    assert len(read(gzip.compress(b"\0" * FREE_BYTES))) == FREE_BYTES
    bomb = gzip.compress(b"\0" * 10_000_000, compresslevel=9)
    made: list[int] = []
    with pytest.raises(InvalidArgument, match=f"{MAX_RATIO} times as large"):
        for _ in decompress(bomb, Internal, "It is not valid gzip", grown=made.append):
            pass
    assert sum(made) <= MAX_RATIO * len(bomb) + 1


def test_the_beginning_of_a_payload_is_known_before_all_of_it_has_come() -> None:
    text = randbytes(100_000)
    packed = gzip.compress(text)
    assert beginning_of(packed, 4_096) == text[:4_096]
    cut_off = beginning_of(packed[:4_096], 4_096)
    assert 4_000 < len(cut_off) < 4_096
    assert text.startswith(cut_off)
    assert beginning_of(gzip.compress(b"ab") + gzip.compress(b"cd"), 4_096) == b"abcd"
    assert beginning_of(b"no gzip", 4_096) == b""


def test_empty_members_without_end_cost_no_time() -> None:
    with pytest.raises(Internal, match="more than 10000 members"):
        read(gzip.compress(b"") * 500_000)
    assert read(gzip.compress(b"") * MAX_MEMBERS) == b""


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"plain",
        gzip.compress(b"text")[:-1],
        gzip.compress(b"text") + b"more",
        gzip.compress(b"text") + gzip.compress(b"text")[:5],
        gzip.compress(b"text") + zlib.compress(b"text"),
        zlib.compress(b"text") + zlib.compress(b"text"),
        zlib.compress(b"text") + b"more",
    ],
    ids=range(8),  # gzip has the time in it: names that had it too would differ between workers of a run
)
def test_what_ends_early_or_is_followed_by_something_else_is_refused(payload: bytes) -> None:
    with pytest.raises(BrokerError, match="It is not valid gzip"):
        read(payload)
