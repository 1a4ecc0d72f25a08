"""Counts what the removal of a topic or of its messages would lose, and lists the resources that refer to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker.core.catalog.topic_rows import read_creation_time, read_newest_message
from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection
from broker.model.preview import MAX_REFERENCES, Preview, Reference, Referrer, Safeguards
from broker.model.timestamps import END_OF_TIME
from broker.model.topic import Topic

_LIST_TOPIC_REFERENCES = statements.load("list_topic_references")
_MEASURE_LOG = statements.load("measure_log")
_MEASURE_SCHEDULED = statements.load("measure_scheduled")
_READ_ENDS = statements.load("read_ends")

_MAX_PREVIEWED = 100_000  # batches that a preview counts: about 100 ms


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLoss:
    """A topic that is about to be deleted or purged: the first of what refers to it, and how much does in all."""

    topic: Topic
    safeguards: Safeguards
    now: datetime
    references: Sequence[Reference]
    reference_count: int


async def begin_topic_loss(
    connection: ResourceConnection, topic: Topic, safeguards: Safeguards, *, now: datetime
) -> TopicLoss | None:
    """Reads what refers to a topic that the caller has locked, before it goes.

    Returns None if nobody has asked what is lost.  Raises Aborted (the topic was created after `asOf`).
    """
    if not safeguards.asked:
        return None
    safeguards.check_existed(await read_creation_time(connection, topic_id=topic.topic_id), topic.name)
    asked = {"topic": topic.name, "topic_id": topic.topic_id, "now": now, "most": MAX_REFERENCES}
    rows: Sequence[Any] = (await connection.exec_driver_sql(_LIST_TOPIC_REFERENCES, asked)).all()
    return TopicLoss(
        topic=topic,
        safeguards=safeguards,
        now=now,
        references=[Reference(name=name, referrer=Referrer(referrer)) for name, referrer, _ in rows],
        reference_count=rows[0][2] if rows else 0,
    )


async def measure_topic(connection: ResourceConnection, loss: TopicLoss, *, retention: timedelta | None) -> Preview:
    """Counts the messages of a topic that were published within `retention`, and its delayed messages.

    If the loss is to be made, the caller has closed the shards, so nobody publishes until the transaction ends.
    Raises Aborted (messages came after `asOf`).
    """
    safeguards, topic = loss.safeguards, loss.topic
    since = END_OF_TIME if retention is None else loss.now - retention
    where = {"shard_ids": list(topic.shard_ids), "since": since}
    if safeguards.as_of is not None:
        newest = await read_newest_message(connection, shard_ids=topic.shard_ids)
        safeguards.check_newest(newest, f"A message came to {topic.name}")
    most = safeguards.max_counted or _MAX_PREVIEWED
    logged: Any = (await connection.exec_driver_sql(_MEASURE_LOG, where | {"most": most})).one()
    waiting: Any = (await connection.exec_driver_sql(_MEASURE_SCHEDULED, where | {"most": most})).one()
    (messages, size, batches), (scheduled, scheduled_size) = logged, waiting
    is_estimated = batches >= most or scheduled >= most
    if batches >= most:
        ends = (await connection.exec_driver_sql(_READ_ENDS, where | {"until": END_OF_TIME})).all()
        published = sum(count for *_, count in ends)
        size, messages = round(size * published / messages), published
    return Preview(
        count=messages + scheduled,
        unit="message",
        time=loss.now,
        losses={
            "messages": messages,
            "bytes": size + scheduled_size,
            "scheduledMessages": scheduled,
        },
        is_estimated=is_estimated,
        references=loss.references,
        reference_count=loss.reference_count,
    )
