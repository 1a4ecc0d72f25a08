"""The plan of every hot statement, as PostgreSQL makes it for the statement that the store really sent.

The store's functions run against tables of some size; then each statement that the session has prepared is
explained with the very parameters it was sent with, once by a custom plan and once by a generic one.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from psycopg import sql

from tests.interleavings.steps import execute
from tests.query_plans.every_statement import MODULES, every_statement_sent, literal, statement_of, statements_of
from tests.query_plans.recorder import Recorder

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOT_TABLES = re.compile(r"messages|scheduled_messages|delivery_attempts|cursors|shards|straggler_batches")

# What makes messages of a batch, in the order of their sequences.
EACH_MESSAGE = {"Nested Loop", "Function Scan"}

INDEX_SCANS = {"Index Scan", "Index Only Scan"}

# Statement -> the indexes that it may use on each hot table (a partition's index goes by its suffix).
EXPECTED = {
    "claim._LOCK_CURSORS": {"cursors_pkey"},
    "journal._INSERT_JOURNAL": set(),
    "journal._LOCK_JOURNALED_ATTEMPTS": {"delivery_attempts_pkey"},
    "claim._LOCK_FREE_CURSORS": {"cursors_pkey"},
    "claim._READ_CURSORS": {"cursors_pkey"},
    "lock_due_attempts_citus._GLIMPSE_DUE": {"delivery_attempts_due_idx"},
    "due._LOCK_DUE_ATTEMPTS": {"delivery_attempts_due_idx", "delivery_attempts_pkey", "cursors_pkey"},
    "due._FIND_DUE_MESSAGES": {"_pkey", "straggler_batches_pkey"},
    "due._FIND_STRAGGLERS_OF_KEYS": {"cursors_pkey", "straggler_batches_pkey"},
    "due._FIND_MESSAGES_OF_KEYS": {"cursors_pkey", "_ordering_key_publish_time_idx"},
    "fresh._READ_FRESH_BATCHES": {"cursors_pkey", "_pkey"},
    "fresh._FIND_FRESH_BATCHES": {"cursors_pkey", "_pkey"},
    "fresh._FIND_FRESH_MESSAGES": {"cursors_pkey", "_pkey", "delivery_attempts_ordering_key_idx"},
    "fresh._FIND_FRESH_MESSAGES_BY_BODY": {"cursors_pkey", "_pkey", "delivery_attempts_ordering_key_idx"},
    "write._INSERT_ORDERED_RUNS": {"shards_pkey"},
    "write._REPLACE_ORDERED_RUNS": {"delivery_attempts_pkey"},
    "write._DELETE_ORDERED_RUNS": {"delivery_attempts_pkey"},
    "write._KEEP_ACKS": {"delivery_attempts_pkey"},
    "fresh._READ_BATCHES": {"_pkey", "straggler_batches_pkey"},
    "waiting._READ_WAITING_SINCE": {"cursors_pkey", "_pkey", "delivery_attempts_due_idx"},
    "passed._INSERT_GONE": {"retracted_messages_pkey", "_pkey"},
    "passed._INSERT_EXPIRED": {"_pkey"},
    "passed._INSERT_EXPIRED_OF_KEYS": {"_ordering_key_publish_time_idx"},
    "write._REPLACE_ATTEMPTS": {"delivery_attempts_pkey"},
    "write._MARK_REDRIVEN": {"delivery_attempts_pkey"},
    "write._MOVE_CURSORS.citus": {"cursors_pkey"},
    "write._MOVE_CURSORS": {"cursors_pkey"},
    "write._READ_NEXT_DELIVERY_ATS.citus": {"delivery_attempts_due_idx"},
    "write._READ_NEXT_DELIVERY_ATS": {"delivery_attempts_due_idx"},
    "write._INSERT_DELIVERY_ATTEMPT": set(),
    "write._INSERT_DELIVERY_ATTEMPTS": {"shards_pkey"},
    "passed._INSERT_GIVEN_UP": {"shards_pkey"},
    "delivery_attempts._ACKNOWLEDGE": {"delivery_attempts_pkey"},
    "acknowledge_citus._ACKNOWLEDGE_WHOLE": {"delivery_attempts_pkey"},
    "delivery_attempts._ACKNOWLEDGE_EXACTLY_ONCE": {"delivery_attempts_pkey"},
    "delivery_attempts._ACKNOWLEDGE_IN_ORDER": {"delivery_attempts_pkey"},
    "delivery_attempts._MODIFY_ACK_DEADLINE": {"delivery_attempts_pkey"},
    "delivery_attempts._MODIFY_ORDERED_DEADLINE": {"delivery_attempts_pkey"},
    "delivery_attempts._EXHAUST_RETURNED": {"delivery_attempts_pkey"},
    "delivery_attempts._MERGE_PARTS": {"delivery_attempts_pkey"},
    "delivery_attempts._RELEASE_ATTEMPTS": {"delivery_attempts_pkey"},
    "delivery_attempts._READ_OPEN_ATTEMPTS": {"delivery_attempts_pkey"},
    "filters._SCAN_NEWEST": {"_pkey"},
    "topic_messages._SCAN_NEWEST": {"_pkey"},
    "topic_messages._SCAN_OLDEST": {"_pkey"},
    "logged_message._FIND_MESSAGE": {"shards_pkey", "_pkey", "straggler_batches_pkey"},
    "delivery_reports._FIND_GAP": {"shards_pkey", "_pkey"},
    "delivery_reports._READ_DELIVERY_FACTS": {
        "cursors_pkey",
        "delivery_attempts_pkey",
        "delivery_attempts_ordering_key_idx",
    },
    "delivery_reports._COUNT_BEFORE": {"cursors_pkey", "_pkey"},
    "delivery_reports._MATCH_MESSAGE": set(),
    "delivery_reports._FIND_DEAD_LETTERS": {"dead_letters_source_idx"},
    "figures._LIST_OLDEST_TOPICS": {"ix_shards_topic_id"},
    "retained._ESTIMATE_RETAINED": {"shards_pkey", "_pkey"},
    "histogram._FIND_OLDEST_BATCH": {"_pkey"},
    "histogram._MEASURE_BUCKETS": {"_pkey"},
    "lag_samples._NEXT_TO_SAMPLE": set(),
    "lag_samples._FIND_MOVED": {"cursors_pkey", "shards_pkey", "delivery_attempts_due_idx"},
    "lag_samples._FIND_MOVED.citus": {
        *("cursors_pkey", "cursors_shard_id_idx", "shards_pkey"),
        *("delivery_attempts_pkey", "delivery_attempts_due_idx"),
    },
    "lag_samples._COUNT_DEAD_LETTERS_OF": {"dead_letters_unresolved_idx"},
    "lag_samples._COUNT_DEAD_LETTERS_OF.citus": {"dead_letters_unresolved_idx"},
    "lag._READ_ACTIVITY": set(),
    "lag._READ_LAG": {
        "cursors_pkey",
        "shards_pkey",
        "delivery_attempts_pkey",
        "_pkey",
        "straggler_batches_pkey",
        "_ordering_key_publish_time_idx",
        "delivery_attempts_ordering_key_idx",
    },
    "readers._COUNT_STILL_OUT": {"delivery_attempts_pkey"},
    "traces._FIND_TRACES": {"delivery_attempts_pkey", "_pkey"},
    "published._READ_SHARD_ENDS": {"shards_pkey"},
    "published._LIST_PUBLISHED": {"_pkey"},
    "backlog_messages._LIST_ATTEMPTS": {"delivery_attempts_pkey"},
    "backlog_messages._LIST_HELD": {"delivery_attempts_pkey", "cursors_pkey", "_ordering_key_publish_time_idx"},
    "backlog_messages._LIST_WAITING": {"cursors_pkey", "_pkey", "delivery_attempts_ordering_key_idx"},
    "backlog_messages._READ_BACKLOG_MESSAGES": {"_pkey", "straggler_batches_pkey"},
    "dead_letters._READ_DEAD_LETTER_MESSAGES": {"_pkey", "straggler_batches_pkey"},
    "messages._TAKE_SEQUENCES": {"shards_pkey"},
    "messages._APPEND_MESSAGES": {"shards_pkey"},
    "append_messages_citus._APPEND_BATCH": set(),
    "append_messages_citus._TAKE_EXPECTED_SEQUENCES": {"shards_pkey"},
    "messages._TAKE_ID_SEQS": {"shards_pkey"},
    "messages._INSERT_SCHEDULED_MESSAGES": {"shards_pkey"},
    "retained_bytes._READ_KEPT": {
        "ix_shards_topic_id",
        "cursors_pkey",
        "delivery_attempts_pkey",
        "delivery_attempts_due_idx",
        "delivery_attempts_ordering_key_idx",
    },
    "read_kept_citus._READ_KEPT": {
        "ix_shards_topic_id",
        "cursors_pkey",
        "delivery_attempts_pkey",
        "delivery_attempts_due_idx",
        "delivery_attempts_ordering_key_idx",
    },
    "read_kept_citus._READ_KEEPERS": {"ix_shards_topic_id"},
    "read_kept_citus._READ_KEPT_OF_SHARDS": {
        "shards_pkey",
        "cursors_pkey",
        "delivery_attempts_pkey",
        "delivery_attempts_due_idx",
        "delivery_attempts_ordering_key_idx",
    },
    "retained_bytes._READ_PROJECTS": set(),
    "retained_bytes._SUM_BATCHES": {"_pkey"},
    "retained_bytes._SUM_SCHEDULED": {"scheduled_messages_pkey"},
    "shards._READ_HEADS": {"shards_pkey"},
    "copying._READ_ENDS": {"shards_pkey", "_pkey"},
    "copying._SCAN_OLDEST": {"_pkey"},
    "redrive._READ_DEAD_LETTER_SHARDS": set(),
    "dead_letter_groups._READ_DEAD_LETTERS": {"_pkey", "straggler_batches_pkey"},
    "redrive._FIND_LOGGED": {"_pkey", "straggler_batches_pkey"},
    "lost_dead_letters._COPY_DEAD_LETTERS": {"_pkey", "straggler_batches_pkey"},
    "redrive._DELETE_REDRIVEN_DEAD_LETTERS": set(),
    "dead_letter_groups._COUNT_DEAD_LETTERS": set(),
    "dead_letter_groups._READ_DEAD_LETTER_TOPICS": {"shards_pkey"},
    "dead_letters._LIST_DEAD_LETTER_SHARDS": set(),
    "redrive._LIST_DEAD_LETTER_SUBSCRIPTIONS": {"cursors_pkey"},
    "dead_letter_groups._READ_BODIES": {"_pkey", "straggler_batches_pkey"},
    "log_walk._FIND_MATCHING": {"_pkey", "straggler_batches_pkey"},
    "purging._READ_OLDEST_BACKLOG": {"cursors_pkey", "delivery_attempts_pkey"},
    "push_replay._FIND_EXPIRED": {"delivery_journal_time_idx"},
    "push_replay._LOCATE_MESSAGES": {"shards_pkey", "_pkey", "straggler_batches_pkey"},
    "push_replay._FIND_LAST_JOURNALED": {"delivery_journal_pkey"},
    "push_replay._FIND_GIVEN_UP": {"dead_letters_source_idx"},
    "resend._LOCATE_MESSAGES": {"shards_pkey", "_pkey", "straggler_batches_pkey"},
    "resend._READ_HEADS": {"shards_pkey"},
    "bringing_back._LOWER_FIRST_SEQ": {"cursors_pkey"},
    "edits._OPEN_SHARD": {"shards_pkey"},
    "discard._RESOLVE_DEAD_LETTERS": set(),
    "discard._LOCATE_MESSAGES": {"shards_pkey", "_pkey", "straggler_batches_pkey"},
    "discard._FIND_DEAD_LETTERS": {"_pkey", "straggler_batches_pkey"},
    "discard._LIST_SUBSCRIPTIONS_OF_SHARDS": {"cursors_pkey"},
    "locked_backlog._LOCK_BACKLOGS": {"cursors_pkey"},
    "locked_backlog._ACKNOWLEDGE": {"delivery_attempts_pkey"},
    "locked_backlog._LOCK_HOLDING_ATTEMPTS": {"delivery_attempts_pkey"},
    "locked_backlog._READ_BACKLOGS": {"cursors_pkey"},
    "locked_backlog._READ_HOLDING_ATTEMPTS": {"delivery_attempts_pkey"},
    "locked_backlog._MATCH_DEAD_LETTERS": {"_pkey", "straggler_batches_pkey"},
    "locked_backlog._FIND_PASSED": {"cursors_pkey", "_pkey"},
    "locked_backlog._REPLACE_ATTEMPTS": {"delivery_attempts_pkey"},
    "locked_backlog._REPLACE_ORDERED_RUNS": {"delivery_attempts_pkey"},
    "locked_backlog._STOP_WAITING": {"delivery_attempts_ordering_key_idx"},
    "locked_backlog._MOVE_CURSORS": {"cursors_pkey"},
    "locked_backlog._MOVE_CURSORS.citus": {"cursors_pkey"},
    "pending_rows._INSERT_PENDING_ATTEMPTS": {"shards_pkey"},
    "pending_rows._LOCK_KEYS": {"delivery_attempts_ordering_key_idx"},
    "pending_rows._HOLD_KEYS": {"shards_pkey"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recorder(clone: Callable[[], Any]) -> AsyncIterator[Recorder]:
    """One for all tests: they only look at plans."""
    with clone() as database_url:
        async with every_statement_sent(database_url) as recorder:
            yield recorder


async def _explain(recorder: Recorder, name: str, mode: str) -> dict[str, Any]:
    statement = statement_of(name)
    assert statement in recorder.sent, f"{name} was not sent"
    values = [literal(recorder.sent[statement][parameter], type_) for parameter, type_ in statement.parameters]
    await execute(recorder.connection, f"SET plan_cache_mode = {mode}")
    prepared = sql.Identifier(statement.name.decode()).as_string()
    arguments = f" ({', '.join(values)})" if values else ""
    [(plan,)] = await execute(recorder.connection, f"EXPLAIN (FORMAT JSON) EXECUTE {prepared}{arguments}")
    top: dict[str, Any] = plan[0]["Plan"]
    return top


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


async def test_every_hot_statement_is_expected_here() -> None:
    assert statements_of(MODULES).keys() == EXPECTED.keys()


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_hot_statements_read_hot_tables_by_index_only(recorder: Recorder, mode: str) -> None:
    faults = []
    for statement, indexes in EXPECTED.items():
        plan = await _explain(recorder, statement, mode)
        faults += [f"{statement}: {fault}" for node in nodes(plan) if (fault := _fault(node, indexes))]
    assert not faults, "\n".join(faults)


def _fault(node: dict[str, Any], indexes: set[str]) -> str | None:
    table, kind, index = (node.get(key, "") for key in ("Relation Name", "Node Type", "Index Name"))
    if not HOT_TABLES.match(table) or kind == "ModifyTable":
        return None
    if kind == "Bitmap Heap Scan":  # its bitmap comes from an index scan, which is looked at as well
        return None
    if kind in ("Index Scan", "Index Only Scan") and any(index.endswith(expected) for expected in indexes):
        return None
    return f"{kind} of {table} {index} {node.get('Index Cond', '')} {node.get('Filter', '')}"


async def test_no_hot_statement_compares_each_of_its_rows_with_each_other(recorder: Recorder) -> None:
    """A flush of acks may name thousands of rows: for 2,005 ordering keys it took seconds, and none went on."""
    faults = []
    for statement in EXPECTED:
        plan = await _explain(recorder, statement, "force_generic_plan")
        faults += [
            f"{statement}: {node['Join Filter']}"
            for node in nodes(plan)
            if node["Node Type"] == "Nested Loop" and "Join Filter" in node  # rather than an index's condition
        ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(
    "statement",
    [
        "fresh._FIND_FRESH_BATCHES",
        "waiting._READ_WAITING_SINCE",
        "filters._SCAN_NEWEST",
        "topic_messages._SCAN_OLDEST",
        "retained_bytes._SUM_BATCHES",
        "backlog_messages._LIST_WAITING",
        "published._LIST_PUBLISHED",
    ],
)
async def test_a_read_of_the_log_stops_early(recorder: Recorder, statement: str, mode: str) -> None:
    """An ordered Append below the limit: no sort, so it reads as many messages as it returns."""
    plan = await _explain(recorder, statement, mode)
    limit = [node for node in nodes(plan) if node["Node Type"] == "Limit"][-1]
    below = {node["Node Type"] for node in nodes(limit)}
    assert below <= {"Limit", "ProjectSet", "Result", "Append", *INDEX_SCANS, *EACH_MESSAGE}, below
    for node in nodes(limit):
        if node["Node Type"] in INDEX_SCANS:
            assert "publish_time >=" in node["Index Cond"]
            assert "ROW(publish_time" in node["Index Cond"]


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("statement", ["fresh._FIND_FRESH_MESSAGES", "fresh._FIND_FRESH_MESSAGES_BY_BODY"])
async def test_a_read_that_looks_for_messages_stops_with_the_last_that_is_wanted(
    recorder: Recorder, statement: str, mode: str
) -> None:
    """No sort below the limit: a claim for ten messages must not look at ten thousand."""
    plan = await _explain(recorder, statement, mode)
    limit = next(node for node in nodes(plan) if node["Node Type"] == "Limit")
    below = {node["Node Type"] for node in nodes(limit)}
    assert below <= {"Limit", "Subquery Scan", "WindowAgg", "Result", "Append", "Index Scan", *EACH_MESSAGE}, below


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_the_next_messages_of_a_key_are_found_without_reading_all_that_wait(
    recorder: Recorder, mode: str
) -> None:
    """Also while some partitions are empty: a million messages may wait behind one."""
    plan = await _explain(recorder, "due._FIND_MESSAGES_OF_KEYS", mode)
    limit = next(node for node in nodes(plan) if node["Node Type"] == "Limit")
    below = {node["Node Type"] for node in nodes(limit)}
    assert below <= {"Limit", "Append", "Index Scan", *EACH_MESSAGE}, below


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_what_stands_before_a_message_is_counted_without_reading_what_stands_behind(
    recorder: Recorder, mode: str
) -> None:
    plan = await _explain(recorder, "delivery_reports._COUNT_BEFORE", mode)
    scans = [node for node in nodes(plan) if node.get("Relation Name", "").startswith("messages_")]
    assert scans, [node.get("Relation Name") for node in nodes(plan)]
    for node in scans:
        assert "publish_time >=" in node["Index Cond"]
        assert "publish_time <=" in node["Index Cond"]
