"""kill -9 of a broker that has acknowledged messages and not written yet by whom: what is told is right, or
says that it is missing (F3).
"""

from collections.abc import Callable
from pathlib import Path

import httpx

from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest

StartBroker = Callable[..., BrokerProcess]


async def test_what_a_killed_broker_had_not_recorded_is_told_to_be_acked_and_not_on_record(
    start_broker: StartBroker, data_dir: Path
) -> None:
    arguments = ("--data-dir", str(data_dir), "--port", "0")
    broker = start_broker(*arguments)
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/kill")
        await rest.create_topic(messageRetentionDuration="600s")
        await rest.create_subscription(ackDeadlineSeconds=600)
        ids = await rest.publish(*map(str, range(40)))
        received = await rest.pull(max_messages=40)
        await rest.acknowledge(received[:10])
        written = await rest.ok("GET", f"{rest.subscription()}/messages/{ids[0]}")  # which writes all of them
        assert written["state"] == "ACKNOWLEDGED"
        for each in received[10:30]:
            await rest.acknowledge([each])
        broker.kill()
    broker = start_broker(*arguments)
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/kill")
        reported = [await rest.ok("GET", f"{rest.subscription()}/messages/{id_}") for id_ in ids]
    by_id = dict(zip(ids, reported, strict=True))
    acked, perhaps, out = ([each["message"]["messageId"] for each in some] for some in (
        received[:10], received[10:30], received[30:],
    ))  # fmt: skip
    assert {by_id[id_]["state"] for id_ in acked} == {"ACKNOWLEDGED"}
    assert {by_id[id_]["state"] for id_ in out} == {"OUTSTANDING"}
    for id_ in perhaps:
        if by_id[id_]["state"] != "ACKNOWLEDGED":
            assert by_id[id_]["state"] == "SETTLED"
            assert by_id[id_]["verdict"].startswith("It was acked. By whom and when is not on record")
            assert "endTime" not in by_id[id_]
