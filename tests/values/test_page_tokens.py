"""Tokens of pages: they say where a list continues, and nobody can make up one that a statement cannot take."""

from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.errors import InvalidArgument
from broker.model.page import Page, cut_page, page_token, parse_page, parse_page_token

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(INT64, st.booleans(), st.datetimes(timezones=st.just(UTC)), st.text())
def test_a_token_gives_its_position_back(number: int, flag: bool, time: datetime, text: str) -> None:
    token = page_token(number, flag, time, text)
    assert parse_page_token(token, int, bool, datetime, str) == (number, flag, time, text)
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def _token(json: str) -> str:
    return urlsafe_b64encode(json.encode()).decode()


@pytest.mark.parametrize(
    ("token", "kinds"),
    [
        ("x", [int]),
        ("é", [int]),
        ("AAAA", [int]),
        ("_" * 32, [int]),
        (_token("1"), [int]),
        (_token("[1.5]"), [int]),
        (_token("[true]"), [int]),
        (_token('["1"]'), [int]),
        (_token("[1,2]"), [int]),
        (_token("[" * 100_000), [int]),
        (_token(f"[{2**63}]"), [int]),
        (_token(f"[{'9' * 5000}]"), [int]),
        (_token(f"[{2**63 - 1}]"), [datetime]),
        (page_token(1, 2), [int]),
        (page_token(1), [int, int]),
        (page_token("projects/p/topics/t"), [int]),
        (page_token(1), [str]),
    ],
)
def test_a_token_that_its_list_cannot_have_given_is_refused_with_its_text(token: str, kinds: list[Any]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_page_token(token, *kinds)
    assert str(refused.value) == f"Invalid page token given (page_token={token})."


def test_a_list_of_names_continues_behind_the_last_one_given() -> None:
    names = [f"projects/p/topics/{dead_letter}" for dead_letter in "abc"]
    given, token = cut_page(names, 2, str)
    assert given == names[:2]
    assert parse_page(2, token) == Page(2, names[1])
    assert cut_page(names, 3, str) == (names, "")


@pytest.mark.parametrize("name", ["", "roles/owner", "projects/p/topics/\0"])
def test_a_name_that_no_list_of_projects_has_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="page_token"):
        parse_page(2, page_token(name))
