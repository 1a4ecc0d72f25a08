"""What is compressed is read to its end and no further than to the limit."""

import gzip
import zlib

import pytest

from broker.domain.errors import BrokerError, Internal, InvalidArgument
from broker.domain.payload import MAX_MEMBERS, MAX_PAYLOAD_BYTES, decompressed

HALF = MAX_PAYLOAD_BYTES // 2


def read(payload: bytes) -> bytes:
    return decompressed(payload, Internal, "It is not valid gzip")


@pytest.mark.parametrize("parts", [1, 2, 3, 1_000])
@pytest.mark.parametrize("size", [0, 1, 700, 5_000])
def test_all_members_of_gzip_are_read(parts: int, size: int) -> None:
    """RFC 1952, 2.2: what is compressed in parts is one file."""
    texts = [bytes([index % 256]) * size for index in range(parts)]
    assert read(b"".join(map(gzip.compress, texts))) == b"".join(texts)


def test_zlib_is_read_too() -> None:
    assert read(zlib.compress(b"text" * 10_000)) == b"text" * 10_000


def test_the_limit_is_that_of_all_members_together() -> None:
    half = gzip.compress(b"x" * HALF)
    assert len(read(half + half)) == MAX_PAYLOAD_BYTES
    with pytest.raises(InvalidArgument, match="exceeds the limit"):
        read(half + half + gzip.compress(b"x"))


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
