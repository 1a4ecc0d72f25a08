"""Conditions on text columns, for the filters of lists."""

from typing import Any

from sqlalchemy import ColumnElement


def text_condition(
    column: ColumnElement[Any], operator: str, value: str, *, before: str = ""
) -> ColumnElement[bool]:
    """Compares by = or !=, where a value that ends in * means all texts that begin with the rest, or by :, which
    asks for texts that contain the value.

    `before`: a pattern of LIKE for what may stand before the value.
    """
    if operator == ":":
        return column.like(f"{before}%{escape_like(value)}%", escape="\\")
    is_prefix = value.endswith("*")
    if is_prefix or before:
        pattern = before + escape_like(value.removesuffix("*")) + ("%" if is_prefix else "")
        found: ColumnElement[bool] = column.like(pattern, escape="\\")
    else:
        found = column == value
    return ~found if operator == "!=" else found


def escape_like(text: str) -> str:
    """The text as a part of a pattern of LIKE that stands for itself."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
