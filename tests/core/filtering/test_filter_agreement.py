"""PostgreSQL and the plain evaluator say the same of every filter and message (A3)."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.filtering.ast import And, Expression, Has, Not, Or, PublishedBefore
from broker.core.filtering.evaluate import matches
from broker.core.filtering.jsonpath import filter_paths, to_jsonpath
from broker.core.filtering.parser import parse_filter
from broker.db.driver.database import Database
from tests.core.filtering.cases import ACCEPTED, MESSAGES
from tests.core.filtering.generated import HOSTILE_BODIES, attributes, expressions, json_texts, of_bodies_too

# The second answer is for the filter as it comes back from a dump.
ANSWERS = """
SELECT attributes::jsonb @@ filter::jsonpath, attributes::jsonb @@ filter::jsonpath::text::jsonpath
FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS pairs (attributes, filter, n)
ORDER BY n
"""


async def answers(database: Database, pairs: Sequence[tuple[Expression, Any]]) -> list[bool | None]:
    messages = [json.dumps(message) for _, message in pairs]
    filters = [to_jsonpath(expression) for expression, _ in pairs]
    async with database.connection() as connection:
        rows = await (await connection.execute(ANSWERS, (messages, filters))).fetchall()
    assert all(direct is restored for direct, restored in rows)
    return [direct for direct, _ in rows]


async def test_postgresql_matches_the_messages_that_it_should(database: Database) -> None:
    pairs = [(parse_filter(case.expression), message) for case in ACCEPTED for message in MESSAGES]
    expected = [i in case.matches for case in ACCEPTED for i in range(len(MESSAGES))]
    assert await answers(database, pairs) == expected


@given(
    batch=st.lists(st.tuples(expressions, st.lists(attributes, min_size=1, max_size=4)), min_size=1, max_size=12)
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_postgresql_and_the_evaluator_agree(
    database: Database, batch: list[tuple[Expression, list[Mapping[str, str]]]]
) -> None:
    pairs = [(expression, message) for expression, messages in batch for message in messages]
    assert await answers(database, pairs) == [matches(expression, message) for expression, message in pairs]


@pytest.mark.parametrize(
    "message", [{"a": 1}, {"a": None}, {"a": True}, {"a": {}}, {"a": []}, [], "a", 1, None], ids=repr
)
async def test_no_answer_is_unknown_even_for_what_no_message_should_hold(database: Database, message: Any) -> None:
    """NULL would drop the message whichever way the filter is turned; the two ways must be opposite."""
    texts = ["attributes:a", 'attributes.a = "1"', 'attributes.a != "1"', 'hasPrefix(attributes.a, "")']
    either = [parse_filter(text) for text in texts]
    yes = await answers(database, [(expression, message) for expression in either])
    no = await answers(database, [(Not(expression), message) for expression in either])
    assert {None} & {*yes, *no} == set()
    assert [not answer for answer in yes] == no


async def test_deep_nesting_is_no_burden(database: Database) -> None:
    deep = parse_filter("-(" * 81 + "attributes:k" + ")" * 81)
    wide = parse_filter(" OR ".join(["attributes:k"] * 16))
    assert await answers(database, [(deep, {"k": ""}), (deep, {}), (wide, {"k": ""}), (wide, {})]) == [
        False,
        True,
        True,
        False,
    ]


# --- bodies -----------------------------------------------------------------------------------------------------

WITH_BODIES = """
SELECT attributes::jsonb @@ filter::jsonpath
       AND (path IS NULL OR message_matches(attributes::jsonb, body, publish_time, path::jsonpath))
FROM unnest(%s::text[], %s::bytea[], %s::timestamptz[], %s::text[], %s::text[])
    WITH ORDINALITY AS asked (attributes, body, publish_time, filter, path, n)
ORDER BY n
"""
Asked = tuple[Expression, Mapping[str, str], bytes, datetime]
CHANGED_AT = datetime(2026, 11, 26, 17, 0, 0, 123_000, UTC)
times = st.sampled_from([CHANGED_AT + n * timedelta(microseconds=1) for n in (-1000, -1, 0, 1, 1000)])


async def answers_of_bodies(database: Database, asked: Sequence[Asked]) -> list[bool | None]:
    paths = [filter_paths(expression) for expression, *_ in asked]
    columns = (
        [json.dumps(attributes) for _, attributes, *_ in asked],
        [body for _, _, body, _ in asked],
        [published for *_, published in asked],
        [path.filter_path for path in paths],
        [path.body_path for path in paths],
    )
    async with database.connection() as connection:
        rows = await (await connection.execute(WITH_BODIES, columns)).fetchall()
    return [answer for (answer,) in rows]


@given(st.lists(st.tuples(of_bodies_too, attributes, json_texts(), times), min_size=1, max_size=25))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_postgresql_and_the_evaluator_agree_about_bodies(database: Database, asked: list[Asked]) -> None:
    assert await answers_of_bodies(database, asked) == [matches(*each) for each in asked]


@given(
    st.lists(
        st.tuples(expressions | of_bodies_too, expressions | of_bodies_too, attributes, json_texts(), times),
        min_size=1,
        max_size=25,
    )
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_they_agree_about_filters_that_were_changed(database: Database, asked: list[Any]) -> None:
    before = PublishedBefore(CHANGED_AT)
    changed = [(Or((And((before, old)), And((Not(before), new)))), *message) for old, new, *message in asked]
    decided = [
        matches(old if published < CHANGED_AT else new, has, body) for old, new, has, body, published in asked
    ]
    assert [matches(*each) for each in changed] == decided
    assert await answers_of_bodies(database, changed) == decided


async def test_they_agree_about_bodies_that_json_readers_differ_on(database: Database) -> None:
    texts = ["body:a", "NOT body:a", "body.a = 1", "body.a != 1", 'body.a: ""', "body.a.a.a = 1", 'body.a = "😀"']
    asked: list[Asked] = [(parse_filter(text), {}, body, CHANGED_AT) for text in texts for body in HOSTILE_BODIES]
    found = await answers_of_bodies(database, asked)
    expected = [matches(*each) for each in asked]
    assert [each for each, is_, should in zip(asked, found, expected, strict=True) if is_ is not should] == []
    assert {True, False} == set(found), "none is unknown"


async def test_a_filter_is_kept_typed_and_read_as_a_parameter(database: Database) -> None:
    hostile = Has('x"); DROP TABLE messages; --')
    async with database.connection() as connection:
        statement = "SELECT %s::jsonb @@ %s::jsonpath, to_regclass('messages') IS NOT NULL"
        row = await (
            await connection.execute(statement, (json.dumps({hostile.key: ""}), to_jsonpath(hostile)))
        ).fetchone()
    assert row == (True, True)
