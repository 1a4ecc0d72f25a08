"""Dead letters of a topic that nobody subscribes to: kept, reported, acted on, counted if they are lost (G2)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.observability.metrics.families import LOST_DEAD_LETTERS
from tests.fixtures.access import StoppedClock
from tests.fixtures.broker import Json, Rest, message, text
from tests.fixtures.database import Database
from tests.fixtures.in_process import running_in_process

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@dataclass
class Given:
    """A subscription whose dead-letter topic has no subscription."""

    broker: Broker
    rest: Rest

    async def give_up(self, *texts: str) -> list[str]:
        ids = await self.rest.publish(*(message(each) for each in texts))
        await self.fail()
        return ids

    async def fail(self) -> None:
        """All that can be pulled."""
        await self.rest.modify_ack_deadline(await self.rest.pull(max_messages=1000), 0)
        while await self.broker.workers["dead-letter forwarder"].run_once():
            pass

    async def pass_time(self, by: timedelta) -> None:
        """And the janitor tidies up, with the partitions that it has made before."""
        await self.broker.jobs.janitor.run_once()
        self.clock.ahead += by
        await self.broker.jobs.janitor.run_once()
        await self.broker.jobs.janitor.run_once()  # what it has dropped is there no more

    @property
    def clock(self) -> StoppedClock:
        assert isinstance(self.broker.core.clock, StoppedClock)
        return self.broker.core.clock

    async def counts(self) -> tuple[int, int, int]:
        """Of the summary, the list and the dry run."""
        path = f"{self.rest.subscription()}/deadLetters"
        summary = await self.rest.ok("GET", path, params={"groupBy": "reason"})
        listed = await self.rest.ok("GET", path, params={"pageSize": 1000})
        plan = await self.rest.ok("POST", f"{self.rest.subscription()}:redrive", {"validateOnly": True})
        return summary["deadLetterCount"], len(listed["deadLetters"]), int(plan["metadata"]["total"])

    async def run(self, verb: str, **body: object) -> Json:
        started = await self.rest.ok("POST", f"{self.rest.subscription()}:{verb}", body)
        return await self.rest.ok("POST", f"{started['name']}:wait", {"timeout": "30s"})

    def lost(self) -> int:
        return self.broker.core.counters.subscription(self.rest.subscription())[LOST_DEAD_LETTERS]


@pytest.fixture
async def given(database_url: str, project: str) -> AsyncIterator[Given]:
    config = AppConfig(
        database_url=database_url,
        min_delivery_attempts=1,
        janitor_interval_seconds=1_000_000,
        dead_letter_interval_seconds=1_000_000,
    )
    broker = Broker(config, make_clock=StoppedClock)
    async with running_in_process(broker) as client:
        rest = Rest(client, project)
        await rest.create_topic()
        await rest.create_topic("dead")
        policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
        await rest.create_subscription(deadLetterPolicy=policy)
        yield Given(broker, rest)


async def _stored(database: Database, query: bytes) -> int:
    async with database.connection() as connection:
        row = await (await connection.execute(query)).fetchone()
    assert row is not None
    return int(row[0])


async def test_they_are_kept_when_their_partitions_are_dropped_and_can_be_acted_on(
    given: Given, database: Database
) -> None:
    ids = await given.give_up(*(f"m{n}" for n in range(40)))
    assert await given.counts() == (40, 40, 40)
    await given.pass_time(6 * DAY)
    assert await _stored(database, b"SELECT count(*) FROM messages") == 0
    assert await given.counts() == (40, 40, 40)
    rest = given.rest
    assert (await given.run("redrive", messageIds=ids[:10]))["metadata"]["counts"] == {"redriven": "10"}
    assert sorted(text(each) for each in await rest.drain()) == sorted(f"m{n}" for n in range(10))
    assert await given.counts() == (30, 30, 30)
    answer = await rest.ok("POST", f"{rest.subscription()}:discard", {"messageIds": ids[10:20]})
    assert answer["counts"] == {"discarded": "10"}
    assert await given.counts() == (20, 20, 20)
    answer = await rest.ok("POST", f"{rest.subscription()}:discard", {"messageIds": ids[10:20]})
    assert answer["counts"] == {"alreadySettled": "10"}
    edited = await rest.ok("POST", f"{rest.subscription()}:editDeadLetter", {"messageId": ids[20]})
    assert [each["message"]["messageId"] for each in await rest.drain()] == [edited["messageId"]]
    assert await given.counts() == (19, 19, 19)
    assert (await given.run("redrive"))["metadata"]["counts"] == {"redriven": "19"}
    assert await given.counts() == (0, 0, 0)
    await rest.drain()
    await given.pass_time(3 * DAY)
    assert given.lost() == 0, "all of them were dealt with"
    assert await _stored(database, b"SELECT count(*) FROM straggler_messages") == 0


async def test_what_is_older_than_seven_days_is_lost_and_the_metric_and_the_log_say_so(
    given: Given, caplog: pytest.LogCaptureFixture
) -> None:
    ids = await given.give_up("a", "b", "c")
    await given.rest.ok("POST", f"{given.rest.subscription()}:discard", {"messageIds": ids[:1]})
    await given.pass_time(8 * DAY)
    assert await given.counts() == (0, 0, 0)
    assert given.lost() == 2, "one was discarded"
    [said] = [each.getMessage() for each in caplog.records if "are lost, and nobody" in each.getMessage()]
    assert said == (
        f"2 dead letters of {given.rest.subscription()} are lost, and nobody had dealt with them: they are kept "
        "for 7 days, or as long as their topic retains messages"
    )


async def test_more_than_can_be_moved_aside_keep_their_partition_until_they_are_dealt_with(
    given: Given, database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.core.retention.retention.MAX_STRAGGLERS", 2)
    ids = await given.give_up("a", "b", "c")
    await given.pass_time(HOUR)
    assert await _stored(database, b"SELECT count(*) FROM messages") > 0
    assert await given.counts() == (3, 3, 3)
    assert "3 are dead letters that nobody has dealt with; up to 2 would be moved aside" in caplog.text
    await given.rest.ok("POST", f"{given.rest.subscription()}:discard", {"messageIds": ids[:1]})
    await given.pass_time(HOUR)
    assert await _stored(database, b"SELECT count(*) FROM messages") == 0
    assert await given.counts() == (2, 2, 2)


async def test_a_topic_that_retains_messages_longer_keeps_its_dead_letters_as_long(given: Given) -> None:
    change = {"topic": {"messageRetentionDuration": f"{14 * 86_400}s"}, "updateMask": "messageRetentionDuration"}
    await given.rest.ok("PATCH", given.rest.topic("dead"), change)
    await given.give_up("a")
    await given.pass_time(13 * DAY)
    assert await given.counts() == (1, 1, 1)
    await given.pass_time(2 * DAY)
    assert await given.counts() == (0, 0, 0)
    assert given.lost() == 1


async def test_a_purge_of_their_topic_loses_them_and_a_deletion_does_not(
    given: Given, caplog: pytest.LogCaptureFixture
) -> None:
    rest = given.rest
    await given.give_up("a", "b")
    await rest.ok("DELETE", rest.topic("dead"))
    await given.pass_time(HOUR)
    assert await given.counts() == (2, 2, 2)
    listed = await rest.ok("GET", f"{rest.subscription()}/deadLetters")
    assert {each["deadLetterTopic"] for each in listed["deadLetters"]} == {"_deleted-topic_"}
    assert (await given.run("redrive"))["metadata"]["counts"] == {"redriven": "2"}
    await rest.create_topic("dead")
    given.broker.core.resources.drop(rest.subscription())
    given.broker.core.resources.drop(rest.topic("dead"))
    await rest.modify_ack_deadline(await rest.pull(), 0)
    await given.give_up("c")
    assert await given.counts() == (3, 3, 3)
    await rest.ok("POST", f"{rest.topic('dead')}:purge", {})
    assert await given.counts() == (0, 0, 0)
    assert given.lost() == 3
    assert f"their topic, {rest.topic('dead')}, was purged" in caplog.text


async def test_what_a_subscription_has_acknowledged_stays_settled_when_it_is_deleted(given: Given) -> None:
    rest = given.rest
    await rest.create_subscription("reader", "dead")
    await given.give_up("a", "b", "c")
    received = await rest.pull("reader")
    await rest.acknowledge(received[:1], "reader")
    assert await given.counts() == (2, 2, 2)
    await rest.ok("DELETE", rest.subscription("reader"))
    assert await given.counts() == (2, 2, 2), "what it had and did not acknowledge can be acted on"
    await given.pass_time(8 * DAY)
    assert given.lost() == 2


async def test_what_a_subscription_acknowledges_is_not_kept(given: Given, database: Database) -> None:
    rest = given.rest
    await rest.create_subscription("reader", "dead")
    await rest.create_subscription("even", "dead", filter="attributes:even")
    await given.give_up("a", "b")
    await rest.drain("reader")
    assert await rest.pull("even") == []
    await given.pass_time(HOUR)
    assert await _stored(database, b"SELECT count(*) FROM straggler_messages") == 0
    assert await _stored(database, b"SELECT count(*) FROM dead_letters") == 0
    assert given.lost() == 0


async def test_a_subscription_with_a_filter_settles_what_it_matches_alone(given: Given) -> None:
    rest = given.rest
    await rest.create_subscription("even", "dead", filter="attributes:even")
    await rest.publish(message("a", {"even": "1"}), message("b"))
    await given.fail()
    assert await given.counts() == (2, 2, 2)
    assert [text(each) for each in await rest.drain("even")] == ["a"]
    assert await given.counts() == (1, 1, 1)
    await given.pass_time(HOUR)
    assert await given.counts() == (1, 1, 1)
    await rest.ok("DELETE", rest.subscription("even"))
    listed = await rest.ok("GET", f"{rest.subscription()}/deadLetters")
    assert [text(each) for each in listed["deadLetters"]] == ["b"]


async def test_the_history_of_a_message_says_who_discarded_or_edited_its_dead_letter(given: Given) -> None:
    rest = given.rest
    discarded, edited = await given.give_up("a", "b")
    await rest.ok("POST", f"{rest.subscription()}:discard", {"messageIds": [discarded]})
    answer = await rest.ok("POST", f"{rest.subscription()}:editDeadLetter", {"messageId": edited})
    report = await rest.ok("GET", f"{rest.subscription()}/messages/{discarded}")
    assert (report["state"], report["deadLetterResolution"]) == ("DEAD_LETTERED", "discarded")
    assert "The dead letter was discarded at 2" in report["verdict"]
    assert [(one["event"], one.get("answer")) for one in report["timeline"]] == [
        ("DEAD_LETTERED", "nack"),
        ("ACKED", "discarded"),
    ]
    report = await rest.ok("GET", f"{rest.subscription()}/messages/{edited}")
    assert (report["deadLetterResolution"], report["deadLetterSuccessorId"]) == ("edited", answer["messageId"])
    assert report["verdict"].endswith(f", and came back as message {answer['messageId']}.")
    assert [(one["event"], one.get("answer")) for one in report["timeline"]] == [
        ("DEAD_LETTERED", "nack"),
        ("WITHDRAWN", f"edited into {answer['messageId']}"),
    ]
    why = await rest.error("POST", f"{rest.subscription()}:editDeadLetter", {"messageId": edited})
    assert (why[0], f"came back as message {answer['messageId']}" in why[1]) == ("FAILED_PRECONDITION", True)
    assert (await given.run("redrive", messageIds=[edited]))["metadata"]["counts"] == {"edited": "1"}
    assert (await given.run("redrive", messageIds=[discarded]))["metadata"]["counts"] == {"redriven": "1"}
    report = await rest.ok("GET", f"{rest.subscription()}/messages/{discarded}")
    assert [one["event"] for one in report["timeline"]] == ["DEAD_LETTERED", "ACKED", "REDRIVEN"]


async def test_while_nobody_subscribes_the_log_and_the_lag_say_so(
    given: Given, caplog: pytest.LogCaptureFixture
) -> None:
    rest = given.rest
    caplog.set_level("INFO", "broker.state")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 7}
    await rest.create_subscription("second", deadLetterPolicy=policy)
    await rest.create_subscription("third")
    change = {"subscription": {"deadLetterPolicy": policy}, "updateMask": "deadLetterPolicy"}
    await rest.ok("PATCH", rest.subscription("third"), change)
    why = (
        f"its dead-letter topic {rest.topic('dead')} has no subscription; dead letters are kept for 7 days, or as "
        "long as the topic retains messages, and are lost then"
    )
    said = [each.getMessage() for each in caplog.records]
    both = rest.subscription("second"), rest.subscription("third")
    assert said == [f"nobody reads dead letters of {name}: {why}" for name in both]
    assert {each["subscription"]: each["warnings"] for each in await _lags(rest)} == {
        rest.subscription(name): [f"{why[0].upper()}{why[1:]}."] for name in ("sub", "second", "third")
    }
    await rest.create_subscription("reader", "dead")
    assert not [each for each in await _lags(rest) if "warnings" in each]
    given.broker.core.resources.drop(rest.subscription("second"))
    await rest.pull("second")
    ended = f"{rest.topic('dead')}, which gets dead letters of {both[0]}, has a subscription, after "
    assert caplog.records[-1].getMessage().startswith(ended)
    await rest.ok("POST", f"{rest.subscription('reader')}:detach", {})
    assert len([each for each in await _lags(rest) if "warnings" in each]) == 3
    await rest.ok("DELETE", rest.topic("dead"))
    gone = f"Its dead-letter topic {rest.topic('dead')} does not exist; what fails is delivered again and again."
    assert {each["subscription"]: each["warnings"] for each in await _lags(rest) if "warnings" in each} == {
        rest.subscription(name): [gone] for name in ("sub", "second", "third")
    }


async def _lags(rest: Rest) -> list[Json]:
    found: list[Json] = (await rest.ok("GET", f"{rest.project}/lag?fresh=true"))["subscriptions"]
    return found
