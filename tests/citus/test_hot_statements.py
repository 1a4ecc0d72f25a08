"""Where each hot statement goes on a Citus cluster: to the node that has its shard, but for those named here."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from broker.core.backlog import lock_backlogs_citus
from broker.core.process.database_clock import DatabaseClock
from broker.core.retention.retention_janitor import RetentionJanitor
from broker.db.driver import statements
from broker.db.driver.by_shard import of_one_shard
from broker.db.driver.database import Database
from broker.db.driver.statements import Statement
from broker.features.dead_letters import read_dead_letters_citus
from broker.features.dead_letters.redriving import copy_dead_letters_citus
from broker.features.retraction import removal as retraction
from broker.features.retraction import rows as retracted
from tests.fixtures.citus import NEEDS_CITUS
from tests.fixtures.core import make_core
from tests.fixtures.database import in_schema
from tests.fixtures.registered import CLEAN_UPS
from tests.query_plans.every_statement import MODULES, every_statement_sent, literal, statements_of

pytestmark = NEEDS_CITUS

_LOCAL = "the catalog's own"
_MANY = "about several shards: a task for each part of a table"
# The coordinator gives out a journal's numbers, so the rows are made there and sent to the shard's node.
_SENT = "made on the coordinator"
_BY_SHARD = "sent for each shard"
_OTHERS = "its second form, NAME_citus.py or NAME.citus.sql, is sent in its place"

# All others have a plan of one task, on the node of the shard.
ELSEWHERE = {
    "dead_letter_groups._COUNT_DEAD_LETTERS": _MANY,
    "dead_letter_groups._READ_DEAD_LETTERS": _OTHERS,
    "dead_letter_groups._READ_DEAD_LETTER_TOPICS": _LOCAL,
    "copying._READ_ENDS": _MANY,
    "dead_letters._LIST_DEAD_LETTER_SHARDS": _MANY,
    "dead_letters._READ_DEAD_LETTER_MESSAGES": _BY_SHARD,
    "delivery_attempts._MODIFY_ACK_DEADLINE": _OTHERS,
    "discard._FIND_DEAD_LETTERS": _MANY,
    "discard._LOCATE_MESSAGES": _BY_SHARD,
    "discard._LIST_SUBSCRIPTIONS_OF_SHARDS": _MANY,
    "discard._RESOLVE_DEAD_LETTERS": _BY_SHARD,
    "passed._INSERT_EXPIRED": _SENT,
    "passed._INSERT_EXPIRED_OF_KEYS": _SENT,
    "passed._INSERT_GONE": _SENT,
    "delivery_reports._FIND_DEAD_LETTERS": _MANY,
    "delivery_reports._MATCH_MESSAGE": _LOCAL,
    "figures._LIST_OLDEST_TOPICS": _LOCAL,
    "retained._ESTIMATE_RETAINED": _MANY,
    "journal._INSERT_JOURNAL": _SENT,
    "lag_samples._NEXT_TO_SAMPLE": _LOCAL,
    "lag_samples._FIND_MOVED": _OTHERS,
    "lag_samples._FIND_MOVED.citus": _MANY,
    "lag_samples._COUNT_DEAD_LETTERS_OF": _OTHERS,
    "lag_samples._COUNT_DEAD_LETTERS_OF.citus": _MANY,
    "lag._READ_ACTIVITY": _LOCAL,
    "lag._READ_LAG": _MANY,
    "dead_letter_groups._READ_BODIES": _BY_SHARD,
    "lost_dead_letters._COPY_DEAD_LETTERS": _OTHERS,
    "locked_backlog._LOCK_BACKLOGS": _OTHERS,
    "locked_backlog._MATCH_DEAD_LETTERS": _BY_SHARD,
    "locked_backlog._READ_BACKLOGS": _OTHERS,
    "purging._READ_OLDEST_BACKLOG": _MANY,
    "push_replay._FIND_GIVEN_UP": _MANY,
    "push_replay._LOCATE_MESSAGES": _BY_SHARD,
    "readers._COUNT_STILL_OUT": _MANY,
    "redrive._DELETE_REDRIVEN_DEAD_LETTERS": _BY_SHARD,
    "redrive._LIST_DEAD_LETTER_SUBSCRIPTIONS": _MANY,
    "redrive._READ_DEAD_LETTER_SHARDS": _MANY,
    "resend._LOCATE_MESSAGES": _BY_SHARD,
    "read_kept_citus._READ_KEPT": _OTHERS,
    "read_kept_citus._READ_KEEPERS": _LOCAL,
    "retained_bytes._READ_KEPT": _OTHERS,
    "retained_bytes._READ_PROJECTS": _LOCAL,
    "retained_bytes._SUM_BATCHES": _BY_SHARD,
    "retained_bytes._SUM_SCHEDULED": _BY_SHARD,
}


def _statements() -> dict[str, Statement]:
    return statements_of(MODULES)


def _text(statement: Statement, given: dict[str, Any]) -> str:
    """With its parameters written out: a prepared INSERT … SELECT is run by Citus, and not explained."""
    values = [literal(given[parameter], type_) for parameter, type_ in statement.parameters]
    return re.sub(r"\$(\d+)", lambda found: f"({values[int(found[1]) - 1]})", statement.text.decode())


def _where(connection: psycopg.Connection[Any], text: str) -> str:
    """Where it goes ("": to the one node), or why it does not."""
    try:
        rows = connection.execute(f"EXPLAIN (COSTS OFF) {text}".encode()).fetchall()
    except psycopg.Error as error:
        return str(error)
    plan = "\n".join(line for (line,) in rows)
    if "pull to coordinator" in plan:
        return _SENT
    tasks = re.findall(r"Task Count: (\d+)", plan)
    if not tasks:
        return _LOCAL
    return "" if tasks == ["1"] and "Distributed Subplan" not in plan else _MANY


@pytest.fixture(scope="module")
def distributed(distributed_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A session of a schema that is distributed, and empty."""
    with psycopg.connect(in_schema(distributed_url), autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")
        yield connection


async def test_each_hot_statement_goes_to_the_node_of_its_shard_but_for_those_named(
    clone: Callable[[], Any], distributed: psycopg.Connection[Any]
) -> None:
    with clone() as database_url:
        async with every_statement_sent(database_url) as recorder:
            sent = recorder.sent
    found = {
        name: _where(distributed, _text(statement, sent[statement])) for name, statement in _statements().items()
    }
    elsewhere = {name: where for name, where in found.items() if where}
    assert elsewhere.keys() == ELSEWHERE.keys()
    for name, where in elsewhere.items():
        if ELSEWHERE[name] is _BY_SHARD:
            statement = of_one_shard(_statements()[name])
            given = sent[_statements()[name]]
            assert _where(distributed, _text(statement, given | {"shard_id": given["shard_ids"][0]})) == "", name
            continue
        assert ELSEWHERE[name] in where or ELSEWHERE[name] is _OTHERS, (name, where)


# Of these types, something: what a statement that only nodes are sent is explained with.
_SOME = {
    "int8": 1,
    "text": "1",
    "jsonpath": "$.a",
    "timestamptz": datetime(2026, 1, 1, tzinfo=UTC),
    "packed bytea[]": b"",
}


@pytest.mark.parametrize(
    "statement",
    [
        lock_backlogs_citus._LOCK_BACKLOGS_OF_SHARD,
        lock_backlogs_citus._READ_BACKLOGS_OF_SHARD,
        copy_dead_letters_citus._PUT_BACK_DEAD_LETTERS,
        of_one_shard(read_dead_letters_citus._MATCH_DEAD_LETTERS),
        *(of_one_shard(each) for each in (retraction._TAKE_SCHEDULED_MESSAGES, retraction._READ_SEQUENCES)),
        of_one_shard(retracted._READ_RETRACTIONS),
        retraction._LOCK_HEADS,
        retraction._LET_KEYS_GO,
    ],
    ids=lambda statement: statement.name.decode(),
)
def test_what_is_sent_for_each_shard_goes_to_its_node(
    distributed: psycopg.Connection[Any], statement: Statement
) -> None:
    given = {name: _some(type_) for name, type_ in statement.parameters}
    assert _where(distributed, _text(statement, given)) == ""


def _some(type_: str) -> Any:
    if type_ == "varbit[]":
        return ["1"]
    if type_ == "bool[]":
        return [True]
    return _SOME[type_] if type_ in _SOME else [_SOME[type_.removesuffix("[]")]]


@pytest.mark.parametrize(
    "name",
    [
        *("read_pins_of_owners", "copy_positions", "copy_outstanding", "copy_stragglers", "count_stragglers"),
        *("delete_unwanted_stragglers", "delete_closed_shards", "find_exhausted", "find_worn_out"),
        *("find_scheduled_shards.citus", "read_kept_of_shards"),
    ],
)
def test_what_is_about_all_shards_is_one_snapshot_of_each(distributed: psycopg.Connection[Any], name: str) -> None:
    """A task for each part of the tables, and none before it: what it says of a shard it says of one moment."""
    given = {
        "now": "now()",
        "kept_since": "now()",
        "start": "now()",
        "end": "now()",
        "snapshot_id": "1",
        "subscription_id": "1",
        **dict.fromkeys(("shard_ids", "subscription_ids", "max_attempts"), "ARRAY[1]"),
    }
    text = re.sub(r"%\((\w+)\)s", lambda found: given[found[1]], statements.load(name))
    plan = "\n".join(line for (line,) in distributed.execute(f"EXPLAIN (COSTS OFF) {text}".encode()).fetchall())
    tasks = "1" if "%(shard_ids)s" in statements.load(name) else "8"
    assert re.findall(r"Task Count: (\d+)", plan) == [tasks], plan
    assert "Distributed Subplan" not in plan
    assert "coordinator" not in plan


async def test_each_part_of_a_pass_of_the_janitor_runs(distributed: psycopg.Connection[Any]) -> None:
    info = distributed.info
    database = Database(f"postgresql://{info.user}@/{info.dbname}?host={info.host}&port={info.port}")
    try:
        clock = DatabaseClock(database)
        await clock.synchronise()
        for _ in range(2):  # the second has partitions
            await RetentionJanitor(make_core(database, clock), CLEAN_UPS).run_once()
    finally:
        await database.close()
