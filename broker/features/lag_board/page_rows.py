"""Reads a page of the lag board."""

import operator as op
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    ColumnElement,
    Float,
    Select,
    any_,
    case,
    cast,
    func,
    literal,
    not_,
    select,
)

from broker.core.lag.lag import NOT_SAMPLED
from broker.db.driver.database import ResourceConnection
from broker.db.driver.text_conditions import text_condition
from broker.db.schema.tables import lag_orders, lag_passes, lag_samples, push_states, subscriptions
from broker.features.lag_board.list_page import (
    AGE,
    COUNTS,
    HELD_BY_NOTHING,
    NAME,
    LagPage,
    Place,
    age_of,
    is_name_of_one,
    number_of,
)
from broker.features.lag_board.sample import LagSample
from broker.model.errors import InvalidArgument
from broker.model.list_filter import TextComparison

_ALL = 2**30  # subscriptions of an order
_SLACK = 20  # subscriptions of an order that may be gone, before it takes another statement to fill a page

_COLUMNS = [
    subscriptions.c.name.label("subscription_name"),
    *(lag_samples.c[field.name] for field in fields(LagSample)),
]


@dataclass(frozen=True, slots=True)
class LagRow:
    """A subscription of a page.

    `sample`: None if it has not been sampled.  `next_place`: the place behind it, where the list continues.
    """

    name: str
    sample: LagSample | None
    next_place: Place


@dataclass(frozen=True, slots=True)
class Board:
    """The lag board of a project.

    `total`: the number of its subscriptions.  `sampled_at`: no values are older than this (None: there is no
    complete sample).  `began_at`: when the sample of the newest order began (None: there is no order).
    """

    total: int
    sampled_at: datetime | None
    began_at: datetime | None


async def read_board(connection: ResourceConnection, *, project: str, page: LagPage) -> Board:
    newest = select(func.max(lag_orders.c.began_at)).where(*_is_order(project, page))
    counted = select(func.count()).select_from(subscriptions).where(*_is_of(project))
    asked = [each.scalar_subquery() for each in (counted, select(lag_passes.c.sampled_at), newest)]
    return Board(*(await connection.execute(select(*asked))).one())


async def read_rows(
    connection: ResourceConnection, *, project: str, page: LagPage, board: Board
) -> Sequence[LagRow]:
    """Returns up to one row more than a page.

    Raises InvalidArgument for a page token of an order that is no longer kept.
    """
    if page.order.field == NAME or (page.is_of_one and page.start is None):
        return await _by_name(connection, project, page, page.start or Place(after=""), most=page.size + 1)
    place = page.start or Place(board.began_at)
    found: list[LagRow] = []
    if place.began_at is not None and place.after is None:
        found += await _ordered(connection, project, page, place)
    missing = page.size + 1 - len(found)
    if missing and not (page.start is None and len(found) == board.total):
        rest = Place(place.began_at, place.passed, place.after or "")
        found += await _by_name(connection, project, page, rest, most=missing)
    return found


async def _ordered(connection: ResourceConnection, project: str, page: LagPage, place: Place) -> Sequence[LagRow]:
    """Returns the subscriptions of an order from a place on, at most one more than a page."""
    is_it = (*_is_order(project, page), lag_orders.c.began_at == place.began_at)
    matching = await _matching(connection, project, page) if page.comparisons else None
    listed, length = lag_orders.c.subscription_ids, func.cardinality(lag_orders.c.subscription_ids)
    found: list[LagRow] = []
    passed, most, is_end = place.passed, page.size + 1, False
    while len(found) < most and not is_end:
        asked = most - len(found) + _SLACK
        count = asked if matching is None else _ALL
        part_of_it = listed[passed + 1 : passed + count]
        if not page.order.descends:
            part_of_it = listed[func.greatest(length - (passed + count) + 1, 1) : length - passed]
        part = (await connection.execute(select(part_of_it, length).where(*is_it))).one_or_none()
        if part is None:
            raise InvalidArgument(
                "The page token belongs to a sample that is gone: begin again with the first page."
            )
        ids: list[int] = part[0] or []
        in_turn = enumerate(ids if page.order.descends else reversed(ids), passed + 1)
        places = {id_: number for number, id_ in in_turn if matching is None or id_ in matching}
        some = dict(islice(places.items(), asked))
        passed = passed + len(ids) if len(some) == len(places) else max(some.values())
        is_end = passed >= part[1]
        of_these = subscriptions.c.subscription_id == any_(literal(list(some), ARRAY(BigInteger)))
        query = _joined(select(*_COLUMNS).select_from(subscriptions), inner=True).where(of_these)
        rows = {row.subscription_id: row for row in await connection.execute(query)}
        found += [_lag_row(rows[id_], replace(place, passed=some[id_])) for id_ in some if id_ in rows]
    return found[:most]


async def _matching(connection: ResourceConnection, project: str, page: LagPage) -> Collection[int]:
    """Returns the ids of the subscriptions that have been sampled and match the filter."""
    ids = func.array_agg(subscriptions.c.subscription_id)
    query = _joined(select(ids).select_from(subscriptions), inner=True).where(*_is_of(project))
    return set(await connection.scalar(query.where(*_conditions(project, page))) or ())


async def _by_name(
    connection: ResourceConnection, project: str, page: LagPage, place: Place, *, most: int
) -> Sequence[LagRow]:
    """Returns up to `most` subscriptions by name, without those that the order of a place contains."""
    descends = page.order.field == NAME and page.order.descends
    query = _joined(select(*_COLUMNS).select_from(subscriptions), inner=False)
    query = query.where(*_is_of(project), *_conditions(project, page))
    name = subscriptions.c.name
    if place.after:
        query = query.where(name < place.after if descends else name > place.after)
    if place.began_at is not None:
        is_it = (*_is_order(project, page), lag_orders.c.began_at == place.began_at)
        listed = func.unnest(select(lag_orders.c.subscription_ids).where(*is_it).scalar_subquery())
        query = query.where(subscriptions.c.subscription_id.not_in(select(listed.column_valued("listed"))))
    query = query.order_by(name.desc() if descends else name).limit(most)
    rows = await connection.execute(query)
    return [_lag_row(row, Place(place.began_at, place.passed, row.subscription_name)) for row in rows]


def _conditions(project: str, page: LagPage) -> Sequence[ColumnElement[bool]]:
    return [_condition(project, comparison) for comparison in page.comparisons]


def _joined(query: Select[Any], *, inner: bool) -> Select[Any]:
    """Joins to subscriptions their samples and the states of their endpoints."""
    of_it = lag_samples.c.subscription_id == subscriptions.c.subscription_id
    query = query.join(lag_samples, of_it, isouter=not inner)
    return query.outerjoin(push_states, push_states.c.subscription_id == subscriptions.c.subscription_id)


def _lag_row(row: Any, next_place: Place) -> LagRow:
    sample = None
    if row.subscription_id is not None:
        sample = LagSample(**{field.name: getattr(row, field.name) for field in fields(LagSample)})
    return LagRow(row.subscription_name, sample, next_place)


def _is_order(project: str, page: LagPage) -> tuple[ColumnElement[bool], ...]:
    return lag_orders.c.project == project, lag_orders.c.order_by == page.order.field


def _is_of(project: str) -> tuple[ColumnElement[bool], ...]:
    name = subscriptions.c.name
    return name > f"{project}/subscriptions/", name < f"{project}/subscriptions0"  # the 0 comes after the slash


# --- Filters ------------------------------------------------------------------------------------------------


def _number(column: Column[Any]) -> ColumnElement[Any]:
    """Returns a figure that is 0 where a sample does not have it, as rates are at the first sample."""
    return func.coalesce(column, 0) if column.nullable else column


_NUMBERS: Mapping[str, ColumnElement[Any]] = {
    **{field: _number(lag_samples.c[column]) for field, column in COUNTS.items()},
    AGE: func.coalesce(func.extract("epoch", lag_samples.c.sampled_at - lag_samples.c.oldest_unacked_at), 0),
}
_OPERATORS: Mapping[str, Callable[[Any, Any], ColumnElement[bool]]] = {
    "=": op.eq,
    "!=": op.ne,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
}
_STATE = func.coalesce(lag_samples.c.state, NOT_SAMPLED)
_HELD_BY = case((_STATE.in_([NOT_SAMPLED, *sorted(HELD_BY_NOTHING)]), ""), else_=_STATE)
_IS_PAUSED = func.coalesce(push_states.c.paused_reason, "") != ""
_BREAKER = case(
    (
        subscriptions.c.settings["pushConfig"].has_key("pushEndpoint"),
        func.coalesce(push_states.c.breaker, "closed"),
    ),
    else_="",
)

_WORDS: Mapping[str, ColumnElement[Any]] = {
    "breaker": _BREAKER,
    "deliveryState": _STATE,
    "heldBy": _HELD_BY,
}


def _condition(project: str, comparison: TextComparison) -> ColumnElement[bool]:
    field, operator, value = comparison
    if field in _NUMBERS:
        number = age_of(value) if field == AGE else number_of(field, value)
        return _OPERATORS[operator](cast(_NUMBERS[field], Float), number)
    if is_name_of_one(comparison) and "/" not in value:
        return subscriptions.c.name == f"{project}/subscriptions/{value}"
    if field == "name":
        return _name_condition(subscriptions.c.name, "subscriptions", operator, value)
    if field == "topic":
        return _name_condition(subscriptions.c.topic, "topics", operator, value)
    if field == "label":
        return _label_condition(operator, value)
    if field == "paused":
        return _IS_PAUSED if (operator == "=") == (value == "true") else not_(_IS_PAUSED)
    return _OPERATORS[operator](_WORDS[field], value)


def _name_condition(column: ColumnElement[Any], kind: str, operator: str, value: str) -> ColumnElement[bool]:
    """Compares a name as a whole or, if the value has no slash, by its last part."""
    return text_condition(column, operator, value, before="" if "/" in value else f"%/{kind}/")


def _label_condition(operator: str, value: str) -> ColumnElement[bool]:
    """Compares the value of a label with that of KEY=VALUE; KEY alone, or after `:`, matches if
    the label exists.
    """
    key, is_pair, wanted = value.partition("=")
    label: ColumnElement[Any] = subscriptions.c.settings["labels"][key].astext
    if operator == ":" or not is_pair:
        return label.is_(None) if operator == "!=" else label.is_not(None)
    found = func.coalesce(text_condition(label, "=", wanted), False)
    return not_(found) if operator == "!=" else found
