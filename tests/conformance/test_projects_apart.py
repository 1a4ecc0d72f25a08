"""No call on one project shows anything of another one."""

import re
from collections.abc import Iterator

import httpx

from tests.console.sample import Sample, fill
from tests.fixtures.broker import Rest, eventually
from tests.fixtures.push_sink import PushSink
from tests.fixtures.registered import ROUTES

PROJECTS = re.compile(r"projects/([a-z][a-z0-9-]+)")
# Calls that answer in other forms, by their query.
QUERIES = {
    "ListProjectDeadLetters": [
        {"groupBy": by} for by in ("sourceSubscription", "sourceTopic", "reason", "status", "fingerprint", "hour")
    ],
    "ListTopics": [{"view": "STATS"}],
    "SearchProject": [{"q": "a"}, {"q": "orders"}, {"q": "*"}],
}
STREAMS = {"TailTopic", "TailSubscription"}


async def project_with_dead_letters(rest: Rest, sink: PushSink, name: str) -> tuple[Rest, Sample]:
    """A project with resources of every kind, and a dead letter in a topic that has no subscription."""
    rest = Rest(rest.client, f"{rest.project}-{name}")
    sample = await fill(rest, sink)
    await rest.create_topic("lost")
    policy = {"deadLetterTopic": rest.topic("lost"), "maxDeliveryAttempts": 5}
    await rest.create_subscription("loses", topic="morgue", deadLetterPolicy=policy)
    await rest.publish("a", topic="morgue")
    [received, *_] = await rest.pull("loses")
    await rest.ok("POST", f"{rest.subscription('loses')}:reject", {"ackIds": [received["ackId"]]})

    async def is_forwarded() -> bool:
        found = await rest.ok("GET", f"{rest.project}/deadLetters")
        return any(each["sourceSubscription"] == rest.subscription("loses") for each in found["deadLetters"])

    await eventually(is_forwarded)
    return rest, sample


def reading_calls(rest: Rest, sample: Sample) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the operation, path and query of every call that reads something of a project."""
    ids = {f"{kind}s": value for kind, value in sample.ids.items()}
    ids |= {"messages": sample.message_id, "serviceAccounts": sample.ids["account"]}
    for route in ROUTES:
        if route.method != "GET" or not route.path.startswith("projects/*") or route.operation in STREAMS:
            continue
        path, colon, verb = route.path.partition(":")
        parts = path.split("/")
        path = "/".join(ids.get(parts[at - 1], "none") if part == "*" else part for at, part in enumerate(parts))
        for query in ({}, *QUERIES.get(route.operation, ())):
            yield route.operation, path + colon + verb, query


async def test_no_call_on_a_project_shows_another_one(rest: Rest, push_sink: PushSink) -> None:
    projects = [await project_with_dead_letters(rest, push_sink, name) for name in ("mine", "theirs")]
    for own, sample in projects:
        answered = set()
        for operation, path, query in reading_calls(own, sample):
            response: httpx.Response = await own.client.get(f"/v1/{path}", params=query)
            assert response.status_code < 500, (path, response.text)
            if response.status_code == 200:
                answered.add(operation)
            shown = set(PROJECTS.findall(response.text))
            assert shown <= {own.project.removeprefix("projects/")}, (operation, path, query, shown)
        assert {"ListProjectDeadLetters", "ListLag", "ListTopics", "GetMessage", "ListOperations"} <= answered
