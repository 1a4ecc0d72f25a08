"""The dead letters of a project, in pages and in groups, over REST; an extension."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from broker.app.broker import Broker
from broker.model.failure_cause import FailureCause
from tests.fixtures.broker import Json, Rest, eventually, message, text
from tests.fixtures.push_sink import PushSink

pytestmark = pytest.mark.own_broker(min_delivery_attempts=1)


@dataclass
class Project:
    """Two subscriptions that give up at the first failure, and a third one that reads their dead letters."""

    broker: Broker
    rest: Rest

    async def subscribe(self, name: str, **settings: Any) -> None:
        policy = {"deadLetterTopic": self.rest.topic("dead"), "maxDeliveryAttempts": 1}
        await self.rest.create_subscription(name, deadLetterPolicy=policy, **settings)

    async def give_up(self, name: str, *texts: str, verb: str = "reject") -> None:
        """Publishes messages to all subscriptions; the one of that name gives them up, the others drop them."""
        await self.rest.publish(*(message(each) for each in texts))
        ack_ids = [each["ackId"] for each in await self.rest.pull(name)]
        await self.rest.ok("POST", f"{self.rest.subscription(name)}:{verb}", {"ackIds": ack_ids})
        for other in {"left", "right"} - {name}:
            await self.rest.drain(other)
        await self.forward()

    async def forward(self) -> int:
        forwarded = 0
        while count := await self.broker.workers["dead-letter forwarder"].run_once():
            forwarded += int(count)
        return forwarded

    async def ask(self, **params: Any) -> Json:
        return await self.rest.ok("GET", f"{self.rest.project}/deadLetters", params=params)

    async def listed(self, **params: Any) -> list[Json]:
        """All pages."""
        found, token = list[Json](), ""
        while True:
            page = await self.ask(**params, **({"pageToken": token} if token else {}))
            found += page["deadLetters"]
            token = page.get("nextPageToken", "")
            if not token:
                return found

    async def groups(self, by: str, **params: Any) -> dict[tuple[str, ...], int]:
        """All pages, by the values of their keys without the names of the project's resources."""
        found, token = list[Json](), ""
        while True:
            page = await self.ask(groupBy=by, **params, **({"pageToken": token} if token else {}))
            found += page["groups"]
            token = page.get("nextPageToken", "")
            if not token:
                return {tuple(v.rpartition("/")[2] for v in g["key"].values()): g["count"] for g in found}


@pytest.fixture
async def project(broker: Broker, rest: Rest) -> Project:
    await rest.create_topic()
    await rest.create_topic("dead")
    await rest.create_subscription("pile", "dead")
    made = Project(broker, rest)
    await made.subscribe("left")
    await made.subscribe("right")
    return made


async def test_dead_letters_of_all_subscriptions_come_in_pages_the_newest_first(project: Project) -> None:
    await project.give_up("left", "a", "b")
    await project.give_up("right", "c")
    await project.give_up("left", "d", "e")
    for size in (1, 2, 100):
        found = await project.listed(pageSize=size)
        assert sorted(map(text, found)) == list("abcde"), size
        times = [each["message"]["publishTime"] for each in found]
        assert times == sorted(times, reverse=True)
    [c] = [each for each in found if text(each) == "c"]
    assert c == c | {
        "sourceSubscription": project.rest.subscription("right"),
        "sourceTopic": project.rest.topic(),
        "deadLetterTopic": project.rest.topic("dead"),
        "subscriptions": [project.rest.subscription("pile")],
        "reason": "reject",
        "fingerprint": FailureCause("reject").fingerprint,
    }
    assert "response" not in c


async def test_a_page_has_as_much_of_the_data_as_it_is_asked_for(project: Project) -> None:
    await project.give_up("left", "abcdef")
    for size, shown in ((0, ""), (2, "ab"), (100, "abcdef")):
        [found] = await project.listed(previewBytes=size)
        assert (text(found), found["dataSize"]) == (shown, 6)
    code, why = await project.rest.error("GET", f"{project.rest.project}/deadLetters?previewBytes=-1")
    assert (code, "previewBytes" in why) == ("INVALID_ARGUMENT", True)


async def test_pages_have_no_gap_and_no_duplicate_while_more_messages_are_given_up(project: Project) -> None:
    await project.give_up("left", *(f"old {n}" for n in range(7)))
    found, token = list[Json](), ""
    for number in range(100):
        page = await project.ask(pageSize=2, **({"pageToken": token} if token else {}))
        found += page["deadLetters"]
        token = page.get("nextPageToken", "")
        if not token:
            break
        await project.give_up("right", f"new {number}")
    assert sorted(map(text, found)) == [f"old {n}" for n in range(7)]


async def test_groups_are_counted_by_several_traits(project: Project) -> None:
    await project.give_up("left", "a", "b")
    await project.give_up("right", "c")
    await project.give_up("right", "d", verb="nack")
    expected = {("left", "reject"): 2, ("right", "nack"): 1, ("right", "reject"): 1}
    for size in (1, 2, 100):
        assert await project.groups("sourceSubscription,reason", pageSize=size) == expected
        newest = await project.groups("sourceSubscription,reason", pageSize=size, orderBy="newestTime desc")
        assert newest == expected
    assert next(iter(newest)) == ("right", "nack"), "which was given up last"
    assert next(iter(await project.groups("sourceSubscription,reason"))) == ("left", "reject"), "which has the most"
    assert [*(await project.groups("sourceTopic,status")).values()] == [4]
    assert sum((await project.groups("hour")).values()) == 4
    [group] = (await project.ask(groupBy="reason", filter='reason = "nack"'))["groups"]
    [letter] = await project.listed(filter='reason = "nack"')
    assert group == {
        "key": {"reason": "nack"},
        "count": 1,
        "oldestTime": letter["message"]["publishTime"],
        "newestTime": letter["message"]["publishTime"],
        "messageId": letter["message"]["messageId"],
    }


async def test_later_pages_of_groups_count_as_the_first_one_did(project: Project) -> None:
    await project.give_up("left", "a", "b", "c")
    await project.give_up("right", "d", "e")
    await project.give_up("right", "f", verb="nack")
    first = await project.ask(groupBy="sourceSubscription,reason", pageSize=1)
    await project.give_up("right", "g", "h", "i")
    later = {"groupBy": "sourceSubscription,reason", "pageSize": 5, "pageToken": first["nextPageToken"]}
    second = await project.ask(**later)
    assert [group["count"] for group in first["groups"] + second["groups"]] == [3, 2, 1]
    assert second["asOfTime"] == first["asOfTime"]


async def test_filters_choose_among_them(project: Project) -> None:
    await project.give_up("left", "a", "b")
    await project.give_up("right", "c")
    await project.give_up("right", "d", verb="nack")
    for filter_text, texts in (
        ("reason = nack", "d"),
        ("reason != nack", "abc"),
        ("reason : jec AND sourceSubscription = right", ""),
        (f"reason : jec AND sourceSubscription = {project.rest.project}/*", "abc"),
        ("sourceSubscription : right", "cd"),
        ("sourceSubscription : right reason = reject", "c"),
        ('deadLetterTime >= "2020-01-01T00:00:00Z"', "abcd"),
        ('deadLetterTime < "2020-01-01T00:00:00Z"', ""),
        (f"fingerprint = {FailureCause('nack').fingerprint}", "d"),
        ("status = 503", ""),
    ):
        listed = await project.listed(filter=filter_text, pageSize=2)
        assert sorted(map(text, listed)) == list(texts), filter_text
        assert sum((await project.groups("reason", filter=filter_text)).values()) == len(texts), filter_text


async def _dealt_with(project: Project) -> Sequence[str]:
    """Gives up a to h, and deals with some of them in each way; returns the others."""
    await project.give_up("left", *"abcdefgh")
    received = {text(each): each for each in await project.rest.pull("pile", 100)}
    ids = {text(each): each["sourceMessageId"] for each in await project.listed()}
    left = project.rest.subscription("left")
    await project.rest.acknowledge([received["a"], received["b"]], "pile")
    await project.rest.modify_ack_deadline([received["c"], received["d"]], 0, "pile")
    await project.rest.ok("POST", f"{left}:discard", {"messageIds": [ids["c"], ids["e"]]})
    await project.rest.ok("POST", f"{left}:editDeadLetter", {"messageId": ids["d"], "data": "ZGQ="})
    await project.give_up("right", "i")
    return ["f", "g", "h", "i"]


async def test_dead_letters_that_were_dealt_with_are_left_out_of_lists_and_counts(project: Project) -> None:
    left = await _dealt_with(project)
    assert sorted(map(text, await project.listed(pageSize=2))) == left
    assert sum((await project.groups("sourceSubscription")).values()) == len(left)
    await project.rest.ok("DELETE", project.rest.subscription("pile"))
    assert sorted(map(text, await project.listed(pageSize=2))) == left, "nobody reads them any more"
    assert sum((await project.groups("sourceSubscription")).values()) == len(left)


async def test_failed_pushes_with_the_same_cause_have_the_same_fingerprint(
    project: Project, push_sink: PushSink
) -> None:
    path = f"/{uuid4()}"
    answers = [f"/body/503/{quote(f'order {n} waits for 10.0.0.{n}:80')}" for n in (1, 2)]
    await push_sink.program(path, *answers, f"/body/503/{quote('no stock')}")
    await project.rest.create_topic("pushed")
    policy = {"deadLetterTopic": project.rest.topic("dead"), "maxDeliveryAttempts": 1}
    push = {"pushEndpoint": push_sink.url + path}
    await project.rest.create_subscription("hook", "pushed", deadLetterPolicy=policy, pushConfig=push)
    for each in "abc":
        await project.rest.publish(message(each), topic="pushed")

        async def is_forwarded() -> bool:
            await project.forward()
            return any(text(letter) == each for letter in await project.listed())  # noqa: B023

        await eventually(is_forwarded)
    same, other = (
        FailureCause("push 503", response) for response in ("order {number} waits for {address}", "no stock")
    )
    assert await project.groups("fingerprint,status") == {
        (same.fingerprint, "503"): 2,
        (other.fingerprint, "503"): 1,
    }
    [group, _] = (await project.ask(groupBy="fingerprint"))["groups"]
    assert (group["reason"], group["response"]) == (same.reason, same.response)
    found = {text(each): each for each in await project.listed(filter=f"fingerprint = {same.fingerprint}")}
    assert sorted(found) == ["a", "b"]
    assert (found["a"]["reason"], found["a"]["response"]) == (same.reason, same.response)


async def test_what_cannot_be_asked_is_refused_by_name(project: Project) -> None:
    for params, named in (
        ({"groupBy": "colour"}, "groupBy=colour"),
        ({"groupBy": "reason,reason"}, "each once"),
        ({"groupBy": "reason", "orderBy": "count"}, "orderBy=count"),
        ({"orderBy": "count desc"}, "needs groupBy"),
        ({"filter": "colour = red"}, "colour"),
        ({"filter": "reason > nack"}, "reason cannot be compared by >"),
        ({"filter": "deadLetterTime = 1"}, "deadLetterTime cannot be compared by ="),
        ({"filter": "deadLetterTime > 1"}, "filter"),
        ({"filter": "?"}, "filter"),
        ({"pageToken": "x"}, "page_token=x"),
        ({"groupBy": "reason", "pageToken": "x"}, "page_token=x"),
        ({"pageSize": "-1"}, "page_size=-1"),
    ):
        code, why = await project.rest.error("GET", f"{project.rest.project}/deadLetters", params=params)
        assert (code, named in why) == ("INVALID_ARGUMENT", True), why


async def test_a_project_without_dead_letters_has_an_empty_list(rest: Rest) -> None:
    path = f"{rest.project}/deadLetters"
    assert (await rest.ok("GET", path))["deadLetters"] == []
    assert (await rest.ok("GET", path, params={"groupBy": "reason"}))["groups"] == []


async def _give_up_many(project: Project, count: int) -> None:
    """Records dead letters as the forwarder does, in half as many groups."""
    for _ in range(count // 1_000):
        await project.rest.publish(*[message("a parcel")] * 1_000, topic="dead")
    async with project.broker.core.database.connection() as connection:
        await connection.execute(
            "INSERT INTO dead_letters (shard_id, publish_time, seq, source_shard_id, source_seq,"
            " source_publish_time, source_topic, subscription_id, subscription, delivery_attempts, reason,"
            " fingerprint)"
            " SELECT m.shard_id, m.publish_time, m.seq, 1, m.seq, m.publish_time, %(topic)s, s.subscription_id,"
            " s.name, 5, 'push 503', left(md5((m.seq / 2)::text), 16)"
            " FROM messages AS m JOIN shards USING (shard_id) JOIN topics AS t USING (topic_id), subscriptions AS s"
            " WHERE t.name = %(dead)s AND s.name = %(left)s",
            {
                "topic": project.rest.topic(),
                "dead": project.rest.topic("dead"),
                "left": project.rest.subscription("left"),
            },
        )


@pytest.mark.slow
async def test_100_000_dead_letters_in_50_000_groups_page_to_their_end(project: Project) -> None:
    count = 100_000
    await _give_up_many(project, count)
    ids, token = set[str](), ""
    while True:
        page = await project.ask(pageSize=1_000, **({"pageToken": token} if token else {}))
        found = {each["message"]["messageId"] for each in page["deadLetters"]}
        assert len(found) == len(page["deadLetters"])
        assert not found & ids
        ids |= found
        token = page.get("nextPageToken", "")
        if not token:
            break
        if len(ids) % 10_000 == 0:
            await project.give_up("right", "later")
    assert len(ids) == count
    keys, token = dict[str, int](), ""
    for order in ("count desc", "newestTime desc"):
        keys.clear()
        while True:
            asked: Json = {"groupBy": "fingerprint", "filter": 'reason = "push 503"', "orderBy": order}
            page = await project.ask(pageSize=1_000, **asked, **({"pageToken": token} if token else {}))
            for group in page["groups"]:
                assert group["key"]["fingerprint"] not in keys
                keys[group["key"]["fingerprint"]] = group["count"]
            token = page.get("nextPageToken", "")
            if not token:
                break
            if len(keys) % 10_000 == 0:
                await project.give_up("right", "later")
        assert (len(keys), sum(keys.values())) in ((count // 2, count), (count // 2 + 1, count)), order
