"""Sets of sequences, in the text format of PostgreSQL's int8multirange: {[1,5),[7,8)}."""

import re
from collections.abc import Collection, Iterable, Sequence

_RANGE = re.compile(r"[\[](\d+),(\d+)\)")


def to_multirange(seqs: Sequence[int]) -> str:
    """The text of the multirange that holds exactly the ascending `seqs`."""
    if seqs and seqs[-1] - seqs[0] == len(seqs) - 1:
        return f"{{[{seqs[0]},{seqs[-1] + 1})}}"
    ranges: list[str] = []
    start = end = -1
    for seq in seqs:
        if seq != end:
            if start >= 0:
                ranges.append(f"[{start},{end})")
            start = seq
        end = seq + 1
    if start >= 0:
        ranges.append(f"[{start},{end})")
    return "{" + ",".join(ranges) + "}"


def multirange_of(bounds: Iterable[tuple[int, int]]) -> str:
    """The text of the multirange of these ranges, each from its first sequence to the one behind its last."""
    return "{" + ",".join(f"[{low},{high})" for low, high in bounds) + "}"


def from_multirange(text: str) -> Sequence[int]:
    """The ascending sequences of a multirange in PostgreSQL's canonical text form."""
    bounds = _RANGE.findall(text)
    if len(bounds) == 1:
        return range(int(bounds[0][0]), int(bounds[0][1]))
    return [seq for low, high in bounds for seq in range(int(low), int(high))]


def bounds_of(text: str) -> list[tuple[int, int]]:
    """The ranges of such a multirange, each from its first sequence to the one behind its last."""
    return [(int(low), int(high)) for low, high in _RANGE.findall(text)]


def bounds_in(text: str) -> list[int]:
    """The same bounds, one after another: in half the time, where there may be a thousand."""
    return [*map(int, text[2:-2].replace("),[", ",").split(","))]


def to_bits(ordinals: Collection[int], length: int) -> str:
    """A bit string of `length` with the bits of the distinct `ordinals` set; that of 0 is the leftmost."""
    if len(ordinals) == length:
        return "1" * length
    bits = bytearray(b"0") * length
    for ordinal in ordinals:
        bits[ordinal] = 49  # "1"
    return bits.decode()


def from_bits(bits: str) -> Sequence[int]:
    """The ordinals of the set bits."""
    if "0" not in bits:
        return range(len(bits))
    return [ordinal for ordinal, bit in enumerate(bits) if bit == "1"]
