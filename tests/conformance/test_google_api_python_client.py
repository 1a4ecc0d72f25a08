"""google-api-python-client, which is built from Google's discovery document, unchanged (D2)."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError

from tests.fixtures.broker import Json

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


class Discovery:
    """The client's collections below `projects`, and names of the test's own project."""

    def __init__(self, service: Any, project: str) -> None:
        self.topics = service.projects().topics()
        self.subscriptions = service.projects().subscriptions()
        self.project = project
        self.topic = f"{project}/topics/topic"
        self.subscription = f"{project}/subscriptions/sub"

    def create(self) -> None:
        self.topics.create(name=self.topic, body={}).execute()
        self.subscriptions.create(name=self.subscription, body={"topic": self.topic}).execute()

    def publish(self, *texts: str) -> list[str]:
        messages = [{"data": base64.b64encode(text.encode()).decode()} for text in texts]
        ids: list[str] = self.topics.publish(topic=self.topic, body={"messages": messages}).execute()["messageIds"]
        return ids

    def pull(self, **fields: Any) -> list[Json]:
        body = {"maxMessages": 100, **fields}
        answer = self.subscriptions.pull(subscription=self.subscription, body=body).execute()
        received: list[Json] = answer.get("receivedMessages", [])
        return received

    def acknowledge(self, received: list[Json]) -> Json:
        body = {"ackIds": [m["ackId"] for m in received]}
        answer: Json = self.subscriptions.acknowledge(subscription=self.subscription, body=body).execute()
        return answer


@pytest.fixture
def google(broker_url: str, project: str) -> Iterator[Discovery]:
    with build(
        "pubsub", "v1", static_discovery=True, client_options={"api_endpoint": broker_url},
        credentials=AnonymousCredentials(),
    ) as service:  # fmt: skip
        yield Discovery(service, project)


def texts(received: list[Json]) -> list[str]:
    return [base64.b64decode(m["message"]["data"]).decode() for m in received]


def all_pages(collection: Any, key: str, **parameters: Any) -> list[Any]:
    """Every item of a list, by the client's own paging."""
    items: list[Any] = []
    request = collection.list(**parameters)
    while request is not None:
        answer = request.execute()
        items += answer.get(key, [])
        request = collection.list_next(request, answer)
    return items


def test_a_topic_is_created_read_updated_and_deleted(google: Discovery) -> None:
    """D2, A12: and is not found afterwards."""
    created = google.topics.create(name=google.topic, body={"labels": {"team": "payments"}}).execute()
    assert created == {"name": google.topic, "labels": {"team": "payments"}}
    assert google.topics.get(topic=google.topic).execute() == created
    body = {"topic": {"labels": {"team": "billing"}}, "updateMask": "labels"}
    assert google.topics.patch(name=google.topic, body=body).execute()["labels"] == {"team": "billing"}
    assert google.topics.delete(topic=google.topic).execute() == {}
    with pytest.raises(HttpError) as missing:
        google.topics.get(topic=google.topic).execute()
    assert missing.value.status_code == 404
    assert "topic" in missing.value.reason


def test_lists_go_over_all_pages(google: Discovery) -> None:
    """D2, A12: topics, subscriptions, and subscriptions of a topic."""
    for n in range(5):
        google.topics.create(name=f"{google.topic}-{n}", body={}).execute()
    listed = all_pages(google.topics, "topics", project=google.project, pageSize=2)
    assert {topic["name"] for topic in listed} == {f"{google.topic}-{n}" for n in range(5)}
    google.create()
    listed = all_pages(google.subscriptions, "subscriptions", project=google.project, pageSize=1)
    assert [s["name"] for s in listed] == [google.subscription]
    assert all_pages(google.topics.subscriptions(), "subscriptions", topic=google.topic) == [google.subscription]


def test_a_subscription_is_updated_detached_and_deleted(google: Discovery) -> None:
    """D2, A12: the mask names what changes, in camelCase."""
    google.create()
    fields = {"labels": {"team": "billing"}, "ackDeadlineSeconds": 30}
    body = {"subscription": fields, "updateMask": "labels,ackDeadlineSeconds"}
    updated = google.subscriptions.patch(name=google.subscription, body=body).execute()
    assert updated["labels"] == {"team": "billing"}
    assert google.subscriptions.get(subscription=google.subscription).execute() == updated
    assert google.subscriptions.detach(subscription=google.subscription).execute() == {}
    assert google.subscriptions.get(subscription=google.subscription).execute()["detached"] is True
    assert google.subscriptions.delete(subscription=google.subscription).execute() == {}
    with pytest.raises(HttpError) as missing:
        google.subscriptions.get(subscription=google.subscription).execute()
    assert missing.value.status_code == 404


def test_messages_are_published_pulled_modified_and_acknowledged(google: Discovery) -> None:
    """D2, A1, A7: with the ids that the publish answered; a nack brings one back."""
    google.create()
    ids = google.publish("a", "b", "c")
    received = google.pull()
    assert [m["message"]["messageId"] for m in received] == ids
    assert texts(received) == ["a", "b", "c"]
    body = {"ackIds": [received[1]["ackId"]], "ackDeadlineSeconds": 0}
    assert google.subscriptions.modifyAckDeadline(subscription=google.subscription, body=body).execute() == {}
    again = google.pull()
    assert texts(again) == ["b"]
    assert google.acknowledge([received[0], received[2], *again]) == {}
    assert google.pull(returnImmediately=True) == []


def test_a_conflict_says_why(google: Discovery) -> None:
    """D2: the exception has the status 409 and the reason."""
    google.create()
    with pytest.raises(HttpError) as conflict:
        google.topics.create(name=google.topic, body={}).execute()
    assert conflict.value.status_code == 409
    assert "already exists" in conflict.value.reason


def test_a_seek_to_a_time_answers_how_many_messages_come_again(google: Discovery) -> None:
    """D2, A9: Google's answer is empty; what is beyond that is given as it came."""
    google.create()
    google.publish("out")
    google.pull()
    body = {"time": "2020-01-01T00:00:00Z"}
    answer = google.subscriptions.seek(subscription=google.subscription, body=body).execute()
    assert answer["replayedMessages"] == 1
    assert texts(google.pull()) == ["out"]
