"""JSON to the letter of RFC 8259: Python's decoder accepts NaN and Infinity."""

import json
from typing import Any, NoReturn


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def decode_json(text: str) -> Any:
    """Raises ValueError, which says what is wrong.  Of a name that is given twice the last value counts."""
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno} column {error.colno}: it is not JSON") from error
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except ValueError as error:
        raise ValueError(str(error) if "is not JSON" in str(error) else "a number has too many digits") from error


def kind_of(value: Any) -> str:
    """What a value is in JSON, with its article."""
    kinds = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
        dict: "an object",
    }
    return kinds.get(type(value), "null")
