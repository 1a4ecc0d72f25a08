"""`broker backup check`: a database that is as it was at one moment passes, one that is put together does not."""

from collections.abc import Callable

import pytest

from broker.db.schema.after_restore import go_on_after_restore
from broker.db.schema.backup_state import inspect_backup
from tests.cli.processes import run_broker
from tests.fixtures.broker import BrokerProcess
from tests.fixtures.dead_letters import make_dead_letters
from tests.fixtures.log import ACK_DEADLINE, Log

_SHARD = "messages past the head of their shard"


@pytest.mark.parametrize(
    ("damage", "flaw"),
    [
        ("UPDATE shards SET head = head - 1", _SHARD),
        ("UPDATE shards SET last_publish_time = last_publish_time - interval '1 hour'", _SHARD),
        ("UPDATE cursors SET next_seq = next_seq + 10", "cursors past the head of their shard"),
        ("DELETE FROM cursors", "subscriptions without a cursor in a shard of their topic"),
        ("DELETE FROM shards", "topics without a shard"),
        (
            "UPDATE delivery_attempts SET seqs = int8multirange(int8range(7, 9))",
            "messages out that their shard does not have",
        ),
        (
            "SELECT setval(pg_get_serial_sequence('topics', 'topic_id'), 1, false)",
            "topics whose numbers would be given again",
        ),
    ],
)
async def test_what_does_not_belong_together_is_found(log: Log, damage: str, flaw: str) -> None:
    await log.publish("a", "b", "c")
    await log.pull(2)
    url = log.database.url
    whole = inspect_backup(url, schema="broker")
    assert (whole.flaws, whole.out, whole.processes) == ({}, 1, 0)
    await log.execute(damage)
    assert flaw in inspect_backup(url, schema="broker").flaws


async def test_dead_letters_a_gap_and_deadlines_of_the_past_are_no_flaws(log: Log) -> None:
    dead_letters = await make_dead_letters(log)
    await dead_letters.give_up("a")
    await log.publish("b", key="k")
    await log.pull(1, ordered=True)
    url = log.database.url
    go_on_after_restore(url, schema="broker")
    await log.publish("c")
    await log.execute(
        f"UPDATE delivery_attempts SET next_delivery_at = now() - interval '{ACK_DEADLINE.total_seconds()} s'"
    )
    found = inspect_backup(url, schema="broker")
    assert (found.flaws, found.past) == ({}, found.out)
    assert found.known_until is not None


@pytest.mark.slow
@pytest.mark.ci
def test_the_command_says_what_it_finds(start_broker: Callable[..., BrokerProcess], database_url: str) -> None:
    broker = start_broker("--database-url", database_url, "--port", "0")
    serving = run_broker("backup", "check", "--database-url", database_url)
    assert (serving.returncode, serving.stderr) == (0, "")
    assert "1 broker process serves from it." in serving.stdout
    broker.stop()
    done = run_broker("backup", "check", "--database-url", database_url)
    assert done.returncode == 0
    assert "Messages, cursors and counters belong together." in done.stdout
    assert "run `broker backup restored` before one does" in done.stdout
