"""Error messages for invalid filters: the position, the text there, and what was expected instead."""

import json
from collections.abc import Set

from broker.model.errors import InvalidArgument

_END = "$END"
# Terminals of the grammar in words, in the order in which they are listed to the caller.
_WORDS = {
    "_ATTRIBUTES": "attributes",
    "_BODY": "body",
    "_HAS_PREFIX": "hasPrefix",
    "_HAS_ATTRIBUTE": "hasAttribute",
    "_NOT": "NOT",
    "_MINUS": '"-"',
    "_LPAR": '"("',
    "_DOT": '"."',
    "_COLON": '":"',
    "_EQUALS": '"="',
    "_NOT_EQUALS": '"!="',
    "ORDER": '"<", "<=", ">", ">="',
    "BARE_KEY": "a key",
    "STRING": "a string in double quotes",
    "NUMBER": "a number",
    "CONSTANT": "true, false, null",
    "_COMMA": '","',
    "_AND": "AND",
    "_OR": "OR",
    "_RPAR": '")"',
    _END: "the end of the filter",
}
_OPERATORS = {"and": "AND", "or": "OR", "not": "NOT"}
_FUNCTIONS = {"hasprefix": "hasPrefix", "hasattribute": "hasAttribute"}
_PUNCTUATION = "\"'&|=!<>,();:"
_QUOTE_THE_KEY = "a key with other characters than letters, digits, - and _ is written in double quotes"
_OPERANDS = (
    "only attributes, and fields of a JSON body, can be filtered on, and every operand is a whole comparison"
)
_SHOWN_CHARACTERS = 40


def refusal(column: int, problem: str) -> InvalidArgument:
    """The error for a filter that is wrong at `column`, counted in characters from 1."""
    return InvalidArgument(f"The filter is not valid: at column {column}: {problem}")


def unexpected(column: int, found: str, accepted: Set[str]) -> InvalidArgument:
    """`found` is what stands at `column`, "" at the end; `accepted` are the terminals that could stand there."""
    what = f"found {_shown(found)}" if found else "the filter ends"
    hint = _hint(found, accepted)
    return refusal(column, f"{what}, expected {_listed(accepted)}" + (f"; {hint}" if hint else ""))


def _shown(text: str) -> str:
    """The user's own text, with what would not show, or would garble a terminal, written as an escape."""
    quoted = json.dumps(
        text[:_SHOWN_CHARACTERS] + ("…" if len(text) > _SHOWN_CHARACTERS else ""), ensure_ascii=False
    )
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in quoted)


def _listed(accepted: Set[str]) -> str:
    words = [word for terminal, word in _WORDS.items() if terminal in accepted]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _hint(found: str, accepted: Set[str]) -> str:
    if found in ("AND", "OR") and accepted & {"_AND", "_OR"}:
        return "AND and OR are mixed only with parentheses"
    if found != found.upper() and (operator := _OPERATORS.get(found.lower())):
        return f"operators are in upper case: {operator}"
    if function := _FUNCTIONS.get(found.lower()):
        return f"the function is spelled {function}"
    if found.startswith('"') and "STRING" in accepted:
        return "the string that begins here is not closed"
    if "_ATTRIBUTES" in accepted:
        return _hint_for_operand(found, accepted)
    in_path = {"_DOT", "_EQUALS"} <= accepted  # of the body
    if in_path and found.startswith("["):
        return "an array stands for each of its elements"
    ends = in_path or not accepted & {"STRING", "_DOT"}
    if found and ends and found[0] not in _PUNCTUATION and not found[0].isspace():
        return "" if found[0].isascii() and found[0].isalnum() else _QUOTE_THE_KEY
    return _QUOTE_THE_KEY if found and "BARE_KEY" in accepted else ""


def _hint_for_operand(found: str, accepted: Set[str]) -> str:
    if "_NOT" not in accepted and (found == "NOT" or found.startswith("-")):
        return "a second negation needs parentheses"
    return _OPERANDS if found else ""
