"""Conditions of lists on columns of text."""

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
        return column.like(f"{before}%{_escaped(value)}%", escape="\\")
    is_prefix = value.endswith("*")
    if is_prefix or before:
        pattern = before + _escaped(value.removesuffix("*")) + ("%" if is_prefix else "")
        found: ColumnElement[bool] = column.like(pattern, escape="\\")
    else:
        found = column == value
    return ~found if operator == "!=" else found


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
