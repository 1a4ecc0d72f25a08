"""The body of a message as text, as JSON or in hex, exactly as it was published.

JSON is indented by a pieceizer and never parsed, so large integers, duplicate keys and escapes stay as they are.
Characters that would not be seen, or that change the direction of text, are shown as escapes, as on a terminal.
"""

import base64
import re
from collections.abc import Mapping
from typing import NamedTuple

from broker.client.terminal import printable

MOST_BYTES = 65_536  # of a body that a page shows
MOST_DEPTH = 64  # levels of JSON that are indented further
_PUNCTUATION = frozenset("{}[],:")
_PIECES = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|"')
_HEX_ROW = 16


class Body(NamedTuple):
    """`kind`: "JSON", "text" or "bytes".  `shown`: how many of `size` bytes `text` shows."""

    kind: str
    text: str
    size: int
    shown: int


def body_of(data: str, view: str = "", most: int = MOST_BYTES, *, size: int | None = None) -> Body:
    """Return what a page shows of `data`, in Base64.

    `view`: "text", "json" or "hex"; "": whichever suits it.  `size`: of the whole body, if `data` is its beginning.
    """
    given = base64.b64decode(data or "")
    whole, part = len(given) if size is None else size, given[:most]
    text = _text(part, cut=len(part) < whole)
    if view == "hex" or text is None:
        return Body("bytes", hex_rows(part), whole, len(part))
    if view != "text" and text.lstrip()[:1] in ("{", "["):
        return Body("JSON", escaped(indented(text)), whole, len(part))
    return Body("text", escaped(text), whole, len(part))


def preview(data: str, most: int = 160) -> str:
    """Return the beginning of a body in one line."""
    whole = base64.b64decode(data or "")
    text = _text(whole[: most * 4], cut=len(whole) > most * 4)
    if text is None:
        return whole[: most // 3].hex(" ")
    line = " ".join(text.split())
    return escaped(line[:most] + ("…" if len(line) > most or len(whole) > most * 4 else ""))


def attribute_line(attributes: Mapping[str, str], most: int = 160) -> str:
    """Return the beginning of the attributes of a message in one line, by name."""
    line = ""
    for name in sorted(attributes):
        if len(line) > most:
            break
        line += f"{' ' if line else ''}{name}={attributes[name]}"
    return escaped(" ".join(line[:most].split()) + ("…" if len(line) > most else ""))


def escaped(text: str) -> str:
    """Return the lines of a text with what is not printable as escapes."""
    return "\n".join(map(printable, text.split("\n")))


def _text(part: bytes, *, cut: bool) -> str | None:
    """Return UTF-8 text; None for other bytes.  `cut`: a character may be incomplete at the end."""
    for missing in range(4 if cut else 1):
        try:
            return part[: len(part) - missing].decode()
        except UnicodeDecodeError:
            continue
    return None


def indented(text: str) -> str:
    """Return JSON with a line for each value.

    Text that is no JSON comes out readable as well, and text that would grow threefold as it is.
    """
    out: list[str] = []
    depth = 0
    pieces = _PIECES.findall(text)
    for index, piece in enumerate(pieces):
        following = pieces[index + 1] if index + 1 < len(pieces) else ""
        if piece in "{[":
            depth += 1
            out.append(piece if following in ("}", "]") else piece + _line(depth))
        elif piece in "}]":
            depth = max(0, depth - 1)
            before = pieces[index - 1] if index else ""
            out.append(piece if before in ("{", "[") else _line(depth) + piece)
        elif piece == ",":
            out.append("," + _line(depth))
        elif piece == ":":
            out.append(": ")
        else:
            before = pieces[index - 1] if index else ","
            out.append(piece if before in _PUNCTUATION else " " + piece)
    made = "".join(out)
    return made if len(made) <= 3 * len(text) + MOST_DEPTH else text


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, MOST_DEPTH)


def hex_rows(data: bytes) -> str:
    """Return bytes as in `hexdump -C`."""
    rows = []
    for start in range(0, len(data), _HEX_ROW):
        row = data[start : start + _HEX_ROW]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{start:08x}  {row.hex(' '):<47}  {shown}")
    return "\n".join(rows)
