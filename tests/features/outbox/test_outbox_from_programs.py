"""The sample of docs/your-own-transaction.md, as SQLAlchemy sends it (J7)."""

import json

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

from broker.model.ack_id import ack_ids_of
from tests.fixtures.application import Application
from tests.fixtures.log import Log

PUBLISH = text("SELECT pubsub.publish(:topic, :data, CAST(:attributes AS jsonb), :key)")
ACKNOWLEDGE = text("SELECT pubsub.acknowledge(:subscription, :ack_ids)")


async def test_the_sample_with_sqlalchemy_stages_a_message_and_an_ack(log: Log, application: Application) -> None:
    await log.publish("a")
    [delivery] = await log.pull()
    ids = ack_ids_of(log.subscription.subscription_id, delivery)
    engine = create_engine(make_url(application.url).set(drivername="postgresql+psycopg"))
    asked = {"topic": "projects/p/topics/t", "data": b'{"id": 17}', "key": "order-17"}
    with Session(engine) as session, session.begin():
        session.execute(PUBLISH, asked | {"attributes": json.dumps({"kind": "paid"})})
        session.execute(ACKNOWLEDGE, {"subscription": log.subscription.name, "ack_ids": ids})
    engine.dispose()
    rows = await log.rows("SELECT data, attributes, ordering_key, ack_ids FROM outbox ORDER BY n")
    assert rows == [(b'{"id": 17}', {"kind": "paid"}, "order-17", None), (None, None, None, ids)]
