"""The statements that search the names and other fields of a project's resources."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, Text, TextClause, bindparam, text

from broker.db.driver.database import ResourceConnection
from broker.db.driver.text_conditions import escape_like
from broker.features.search.result import Result, ResultKind, Scope

_NAMED = "FROM {table} WHERE name > :within AND name < :end"
_ID = "SELECT 'name', split_part(key, '/', 4)"
_LABELS = """
    UNION ALL SELECT 'labels', label.key || '=' || label.value FROM jsonb_each_text({labels}) AS label
"""


class _Source(NamedTuple):
    """The SQL that reads the resources of a kind.

    `rows` selects the rows of a project with their keys; `fields` selects the names and values of the fields of
    such a row.  `collection`: the names of the project's resources of this kind begin with it.  `prefix`: the part
    of a name before the key, where there is one.
    """

    collection: str
    rows: str
    fields: str
    prefix: str = ""


def _named(collection: str, table: str, *, more: str = "key", also: str = "", fields: str = "") -> _Source:
    """Returns the source of a table with full names in the column `name`.

    `more`: other columns that `fields` reads; `also`: an additional condition.
    """
    columns = "name AS key" if more == "key" else f"name AS key, {more}"
    return _Source(collection, f"SELECT {columns} {_NAMED.format(table=table)} {also}", _ID + fields)


_SOURCES: Mapping[ResultKind, _Source] = {
    ResultKind.TOPIC: _named(
        "topics", "topics", more="settings", fields=_LABELS.format(labels="settings -> 'labels'")
    ),
    ResultKind.SUBSCRIPTION: _named(
        "subscriptions", "subscriptions", more="settings", fields=_LABELS.format(labels="settings -> 'labels'")
    ),
    ResultKind.SNAPSHOT: _named(
        "snapshots",
        "snapshots",
        more="labels",
        also="AND expire_time > :now",
        fields=_LABELS.format(labels="labels"),
    ),
    ResultKind.SCHEMA: _named("schemas", "payload_schemas"),
    ResultKind.SCHEDULE: _named("schedules", "schedules"),
    ResultKind.OPERATION: _named(
        "operations",
        "operations",
        more="target, started_by",
        fields=" UNION ALL SELECT 'target', split_part(target, '/', 4) UNION ALL SELECT 'startedBy', started_by",
    ),
    ResultKind.SERVICE_ACCOUNT: _Source(
        "serviceAccounts",
        "SELECT email AS key, display_name FROM service_accounts WHERE project = :project",
        "SELECT 'email', key UNION ALL SELECT 'displayName', display_name",
        prefix="/serviceAccounts/",
    ),
    ResultKind.API_KEY: _named(
        "apiKeys", "api_keys", more="display_name", fields=" UNION ALL SELECT 'displayName', display_name"
    ),
    ResultKind.ROLE: _named(
        "roles", "custom_roles", more="title", also="AND NOT deleted", fields=" UNION ALL SELECT 'title', title"
    ),
    ResultKind.POLICY: _Source(
        "",
        """
        SELECT resource AS key, bindings FROM policies WHERE resource = :project AND '' = ANY(:policies_of)
        UNION ALL
        SELECT resource, bindings FROM policies
        WHERE resource > :within AND resource < :end AND split_part(resource, '/', 3) = ANY(:policies_of)
        """,
        """
        SELECT 'members', member
        FROM jsonb_array_elements(bindings) AS binding, jsonb_array_elements_text(binding -> 'members') AS member
        """,
    ),
}
_EXACT = """
    (SELECT '{kind}' AS kind, key FROM ({rows}) AS source
     WHERE key = ANY(:exact) AND key > :after {only} ORDER BY key LIMIT :limit)
"""
_EXAMINED = """
    SELECT * FROM ({rows}) AS source WHERE key > :after AND key <> ALL(:exact) {only} ORDER BY key LIMIT :budget
"""
# How many rows were examined matters only if they have no more results than fit.
_CONTAINING = f"""
    WITH found AS MATERIALIZED (
        SELECT key, field, value
        FROM ({_EXAMINED}) AS examined, LATERAL (
            SELECT * FROM ({{fields}}) AS fields (field, value) WHERE value ILIKE :pattern LIMIT 1
        ) AS matched
        ORDER BY key LIMIT :limit
    )
    SELECT key, field, value, 0 AS examined FROM found
    UNION ALL
    SELECT max(key), '', '', count(*) FROM ({_EXAMINED}) AS examined WHERE (SELECT count(*) FROM found) < :limit
"""  # noqa: S608  (of this module's texts alone)
_NAMES = ARRAY(Text)
_PARAMETER = re.compile(r":(\w+)")
_TYPES = {"exact": _NAMES, "only": _NAMES, "policies_of": _NAMES}


def _written(template: str) -> Mapping[tuple[ResultKind, bool], str]:
    """Returns the SQL by kind, and by whether `only` restricts what may be found."""
    return {
        (kind, is_limited): template.format(kind=kind, rows=source.rows, fields=source.fields, only=only)
        for kind, source in _SOURCES.items()
        for is_limited, only in ((False, ""), (True, "AND key = ANY(:only)"))
    }


def _statement(sql: str) -> TextClause:
    """Returns the statement with the types of its parameters, whose names may end in a number."""
    types = {name: _TYPES.get(name.rstrip("0123456789")) for name in _PARAMETER.findall(sql)}
    return text(sql).bindparams(*(bindparam(name, type_=type_) for name, type_ in types.items() if type_))


_EXACT_OF = _written(_EXACT)
_FIND_CONTAINING = {key: _statement(sql) for key, sql in _written(_CONTAINING).items()}


class Compared(NamedTuple):
    """The results among `examined` rows.  `last`: the key of the last of these rows."""

    results: Sequence[tuple[str, Result]]
    examined: int
    last: str


class Query(NamedTuple):
    """A text, and the resources that a caller may find."""

    scope: Scope
    text: str
    now: datetime


async def find_exact(
    connection: ResourceConnection, query: Query, kinds: Mapping[ResultKind, str], *, limit: int
) -> Mapping[ResultKind, Sequence[tuple[str, Result]]]:
    """Returns up to `limit` resources of each kind whose id or full name is the text, with their keys, by key.

    `kinds`: the key behind which each kind continues.  It is one statement for all kinds.
    """
    found: dict[ResultKind, list[tuple[str, Result]]] = {kind: [] for kind in kinds}
    if not kinds:
        return found
    for name, key in await connection.execute(*_find_exact(query, kinds, limit=limit)):
        kind = ResultKind(name)
        field = "email" if kind is ResultKind.SERVICE_ACCOUNT else "name"
        found[kind].append((key, _result(query, kind, key, field, key.rpartition("/")[2])))
    return {kind: sorted(some, key=itemgetter(0)) for kind, some in found.items()}


def _find_exact(query: Query, kinds: Mapping[ResultKind, str], *, limit: int) -> tuple[TextClause, dict[str, Any]]:
    """Returns the statement of `find_exact`, with its values."""
    parts, given = list[str](), dict[str, Any]()
    for number, (kind, after) in enumerate(kinds.items()):
        values = _values(query, kind) | {"after": after, "limit": limit}
        parts.append(_PARAMETER.sub(rf":\g<1>{number}", _EXACT_OF[kind, values["only"] is not None]))
        given |= {f"{name}{number}": value for name, value in values.items()}
    return _statement(" UNION ALL ".join(parts)), given


async def find_containing(
    connection: ResourceConnection, query: Query, kind: ResultKind, *, after: str, limit: int, budget: int
) -> Compared:
    """Returns up to `limit` resources of a kind with the text in a field, among the next
    `budget` resources by key.
    """
    pattern = f"%{escape_like(query.text)}%"
    values = _values(query, kind) | {"after": after, "limit": limit, "budget": budget, "pattern": pattern}
    *found, (last, _, _, count) = (
        await connection.execute(_FIND_CONTAINING[kind, values["only"] is not None], values)
    ).all()
    results = [(key, _result(query, kind, key, field, value)) for key, field, value, _ in found]
    return Compared(results, count, last or "")


def _result(query: Query, kind: ResultKind, key: str, field: str, value: str) -> Result:
    prefix = _SOURCES[kind].prefix
    return Result(kind, f"{query.scope.project}{prefix}{key}" if prefix else key, field, value)


def _values(query: Query, kind: ResultKind) -> dict[str, Any]:
    scope, source = query.scope, _SOURCES[kind]
    prefix = f"{scope.project}{source.prefix}" if source.prefix else ""
    within = f"{scope.project}/{source.collection}"
    only = scope.names.get(kind)
    names = [] if kind is ResultKind.POLICY else _exact_names(query.text, within, scope.project)
    return {
        "project": scope.project,
        "within": f"{within}/" if source.collection else within,
        "end": f"{within}0" if source.collection else f"{scope.project}0",  # "0" comes after the slash
        "exact": sorted(name.removeprefix(prefix) for name in names),
        "only": None if only is None else sorted(name.removeprefix(prefix) for name in only),
        "policies_of": sorted(scope.policies_of),
        "now": query.now,
    }


def _exact_names(searched: str, within: str, project: str) -> Collection[str]:
    """Returns the full names that a text may stand for as an id, a name within the project, or a full name."""
    return {searched, f"{project}/{searched}", f"{within}/{searched}"}
