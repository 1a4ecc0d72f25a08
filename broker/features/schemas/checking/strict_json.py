"""Parses JSON as RFC 8259 defines it; Python's decoder also accepts NaN and Infinity."""

import json
from typing import Any, NoReturn


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice in one object")
    return found


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
_decode_unique = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeats).decode


def decode_json(text: str, *, unique: bool = False) -> Any:
    """`unique`: a name may not be given twice in an object; otherwise the last value counts.

    Raises ValueError, which says what is wrong.
    """
    try:
        return _decode_unique(text) if unique else _decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno} column {error.colno}: it is not JSON") from error
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except ValueError as error:
        if "integer string conversion" in str(error):  # Python's own limit
            raise ValueError("a number has too many digits") from error
        raise


def kind_of(value: Any) -> str:
    """The JSON type of a value, with its article: "a number"."""
    kinds = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
        dict: "an object",
    }
    return kinds.get(type(value), "null")
