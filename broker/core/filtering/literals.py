r"""String literals of filters, in double quotes.

Google documents that backslashes, quotation marks and non-printing characters are escaped, and that Unicode,
hexadecimal and octal escapes exist; not more.  The rest is as in its CEL and GoogleSQL: \xhh and \ooo (exactly
so many digits) and \uhhhh, \Uhhhhhhhh are code points, \a \b \f \n \r \t \v \\ \" \' \` \? are one character.
Two \u that are a UTF-16 surrogate pair are the one character they mean, as in JSON.
"""

import re

from broker.core.filtering.refusals import refusal

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_ONE_CHARACTER = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", '"': '"', "'": "'", "`": "`", "?": "?",
}  # fmt: skip
_NON_PRINTING = re.compile(r"[\x00-\x1f\x7f]")


def unquote(literal: str, column: int) -> str:
    """The text of a literal that is given with its quotes and begins at `column`.

    Raises InvalidArgument for an unknown escape, a non-printing character that is not escaped, and for what no
    attribute can hold: U+0000 (PostgreSQL's jsonb cannot) and half a surrogate pair (it is not a character).
    """
    inside, first = literal[1:-1], column + 1
    if control := _NON_PRINTING.search(inside):
        spelled = f"\\x{ord(control[0]):02x}"
        raise refusal(first + control.start(), f"a non-printing character in a string is escaped: {spelled}")
    text = _ESCAPE.sub(lambda escape: _character(escape, first + escape.start()), inside)
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise refusal(column, "the string has half a surrogate pair, which is not a character") from None


def _character(escape: re.Match[str], column: int) -> str:
    hexadecimal, unicode, long_unicode, octal, letter = escape.groups()
    if letter is not None:
        if letter not in _ONE_CHARACTER:
            raise refusal(
                column,
                r"unknown escape, expected one of \\ \" \n \r \t \a \b \f \v, \xhh, \ooo, \uhhhh or \Uhhhhhhhh",
            )
        return _ONE_CHARACTER[letter]
    code_point = int(octal, 8) if octal else int(hexadecimal or unicode or long_unicode, 16)
    if not 0 < code_point <= 0x10FFFF:
        raise refusal(column, "this character cannot occur in an attribute")
    return chr(code_point)
