"""A connection sends statements in the form for the tables that it is to."""

from typing import Any

import pytest

from broker.db.driver import statements
from broker.db.driver.forms import of_one_statement, run_in_forms
from broker.db.driver.statements import BEGIN, COMMIT, Statement
from tests.db.test_on_nodes import as_on_nodes
from tests.fixtures.log import Log
from tests.query_plans.recorder import Recorder

pytestmark = pytest.mark.one_server("it has both forms of a statement, and nodes do not take the other one")

_ASKED = Statement(b"asked", b"SELECT 'first form'")
_OTHER = Statement(b"other", b"SELECT 'other'")


@of_one_statement
async def _asked(connection: Any, given: dict[str, Any]) -> list[Any]:
    return [(given["answer"],), *(await connection.run((_OTHER, {})))[0]]


vars(_ASKED)["citus_function"] = _asked
_GIVEN = (_ASKED, {"answer": "second form"})


async def test_a_function_runs_in_place_of_its_statement_and_the_others_of_the_batch_are_sent_around_it(
    log: Log,
) -> None:
    async with as_on_nodes(log) as session:
        recorder = Recorder(session)
        rows = await recorder.run((BEGIN, {}), (_OTHER, {}), _GIVEN, _GIVEN, (COMMIT, {}))
        assert not session.in_transaction
        session.is_distributed = False
        assert await session.run(_GIVEN) == [[("first form",)]]
    second = [("second form",), ("other",)]
    assert rows == [[], [("other",)], second, second, []]
    sent = [statement.name for statement, _ in recorder.every]
    assert sent == [b"begin", b"other", b"other", b"other", b"commit"]


async def test_a_batch_that_is_no_transaction_is_refused_as_its_parts_would_be_committed_one_by_one(
    log: Log,
) -> None:
    async with as_on_nodes(log) as session:
        with pytest.raises(RuntimeError, match="_asked is sent with other statements"):
            await session.run((_OTHER, {}), _GIVEN)
        assert await session.run(_GIVEN) == [[("second form",), ("other",)]]


async def test_a_text_for_one_element_is_sent_for_one_and_the_first_form_for_several(log: Log) -> None:
    find = statements.hot("read_next_delivery_ats")
    async with as_on_nodes(log) as session:
        for ids, name in (([1], b"read_next_delivery_ats.citus"), ([1, 2], b"read_next_delivery_ats")):
            recorder = Recorder(session)
            asked = {"shard_id": 1, "subscription_ids": ids, "now": log.start}
            assert await run_in_forms(recorder, [(find, asked)]) == [[]]
            assert [statement.name for statement in recorder.sent] == [name]
