"""An ack id may name any shard: those that are none of the subscription's cost no statement each (A7)."""

from typing import Any

import msgspec
import pytest

from broker.core.acking.ack_writer import AckWriter
from broker.model.ack_id import _parse_prefix, make_ack_ids
from tests.fixtures.broker import Rest

pytestmark = pytest.mark.own_broker


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The shards of which anything was written."""
    shard_ids: list[int] = []
    write = AckWriter.write

    async def recorded(self: AckWriter, shard_id: int, *rest: Any) -> Any:
        shard_ids.append(shard_id)
        return await write(self, shard_id, *rest)

    monkeypatch.setattr(AckWriter, "write", recorded)
    return shard_ids


def forged(ack_id: str, count: int) -> list[str]:
    """Ids of the same subscription, each in a shard of its own."""
    attempt = _parse_prefix(ack_id[:36])
    assert attempt is not None
    names = [msgspec.structs.replace(attempt, shard_id=attempt.shard_id + n) for n in range(1_000, 1_000 + count)]
    return [make_ack_ids(name, [0])[0] for name in names]


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("verb", ["acknowledge", "modifyAckDeadline", "reject"])
async def test_ids_in_shards_of_others_are_stale_and_nothing_is_written_for_them(
    rest: Rest, written: list[int], verb: str, exactly_once: bool
) -> None:
    for name in ("topic", "dead"):
        await rest.create_topic(name)
    policy = {"deadLetterTopic": rest.topic("dead")}
    await rest.create_subscription("sub", "topic", deadLetterPolicy=policy, enableExactlyOnceDelivery=exactly_once)
    await rest.publish("a")
    [received] = await rest.pull()
    ids = [received["ackId"], *forged(received["ackId"], 50)]
    body = {"ackIds": ids} | ({"ackDeadlineSeconds": 600} if verb == "modifyAckDeadline" else {})
    answer = await rest.client.post(f"/v1/{rest.subscription()}:{verb}", json=body)
    assert len(set(written)) == 1
    if verb == "reject":
        assert "50 of 51 messages were not rejected" in answer.json()["error"]["message"]
    elif exactly_once:
        [detail] = answer.json()["error"]["details"]
        assert sorted(detail["metadata"]) == sorted(ids[1:])
    else:
        assert answer.status_code == 200
