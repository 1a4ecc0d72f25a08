"""Decodes long base64 strings of a JSON body piece by piece, because 10 MB at once would block the event loop.

Each long string is cut out of the body and replaced by a short placeholder that no client can guess.  The rest of
the body is decoded as usual, and a placeholder that appears as data stands for its bytes.  If a string is irregular
(an escape, a character outside base64), the body is left unchanged, and the usual decoder reports the error.
"""

import os
from base64 import b64encode
from typing import cast

import msgspec

from broker.api.steps import STEP_COST, Steps

BLOCK = 2_048  # a text twice as long is always found
_PIECE = STEP_COST // 4 * 4  # whole groups of base64
_SECRET = os.urandom(16)
_decode = msgspec.json.Decoder(bytes).decode

# The rest of the body, and the bytes that each placeholder in it stands for.
Texts = dict[bytes, bytes]


def without_long_texts(body: bytes) -> Steps[tuple[bytes, Texts]]:
    """The body without its long texts; as it is, and no texts, if there are none that can be taken out."""
    texts: Texts = {}
    rest: list[bytes] = []
    at = cost = 0
    for start, end in _long_texts(body):
        cost += end - start
        if cost > _PIECE or not texts:
            yield min(cost, _PIECE)
            cost = 0
        data = yield from _decoded(body, start, end)
        if data is None:
            return body, {}
        ours = _SECRET + len(texts).to_bytes(8, "big")
        texts[ours] = data
        rest += body[at:start], b64encode(ours)
        at = end
    rest.append(body[at:])
    return (b"".join(rest), texts) if texts else (body, texts)


def _long_texts(body: bytes) -> list[tuple[int, int]]:
    """Returns where the long texts begin and end, without their quotes.

    A block without a quote is within a long text, or the body is malformed.
    """
    found: list[tuple[int, int]] = []
    at, size = 0, len(body)
    while at + BLOCK < size:
        if body.find(b'"', at, at + BLOCK) < 0:
            start, end = body.rfind(b'"', 0, at) + 1, body.find(b'"', at + BLOCK)
            if not start or end < 0:
                break
            found.append((start, end))
            at = end
        at += BLOCK
    return found


def _decoded(body: bytes, start: int, end: int) -> Steps[bytes | None]:
    """None: it is not plain base64."""
    data = bytearray()  # it grows in place: pieces would be copied once more, into a new block
    for at in range(start, end, _PIECE):
        stop = min(at + _PIECE, end)
        if at > start:
            yield stop - at
        try:
            piece = _decode(b'"%b"' % body[at:stop])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        if stop < end and len(piece) * 4 != (stop - at) * 3:
            return None
        if stop - at == end - start:
            return piece
        data += piece
    return cast(bytes, data)  # it is only read
