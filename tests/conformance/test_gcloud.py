"""`gcloud pubsub`, unchanged (D2).  A call takes a second or two, so each test is a story of a few calls."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Gcloud = Callable[..., Any]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ci,
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not on PATH"),
]


@pytest.fixture
def gcloud(broker_url: str, project: str, tmp_path_factory: pytest.TempPathFactory) -> Gcloud:
    """Runs `gcloud pubsub …` against the broker and returns what it prints, as JSON."""
    configuration: Path = tmp_path_factory.getbasetemp() / "gcloud"
    settings = {
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB": f"{broker_url}/",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_PROJECT": project.removeprefix("projects/"),
        "CLOUDSDK_CONFIG": str(configuration),
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
    }

    def run(*arguments: str) -> Any:
        command = ["gcloud", "pubsub", *arguments, "--format=json", "--quiet"]
        done = subprocess.run(
            command, env=os.environ | settings, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return json.loads(done.stdout) if done.stdout.strip() else None

    return run


def test_topics(gcloud: Gcloud, project: str) -> None:
    """D2, A12: create, update labels (refused by Google's emulator), list, delete."""
    name = f"{project}/topics/topic"
    gcloud("topics", "create", "topic", "--labels=team=payments,old=1")
    gcloud("topics", "update", "topic", "--update-labels=team=billing", "--remove-labels=old")
    assert gcloud("topics", "list") == [{"name": name, "labels": {"team": "billing"}}]
    gcloud("topics", "delete", "topic")
    assert gcloud("topics", "list") == []


def test_a_message_goes_round(gcloud: Gcloud, project: str) -> None:
    """D2, A1, A7: publish, pull, change the deadline, acknowledge; then detach and delete the subscription."""
    gcloud("topics", "create", "topic")
    gcloud("subscriptions", "create", "sub", "--topic=topic", "--ack-deadline=20")
    gcloud("topics", "publish", "topic", "--message=hello", "--attribute=kind=greeting")
    (first,) = gcloud("subscriptions", "pull", "sub")
    assert first["message"]["attributes"] == {"kind": "greeting"}
    gcloud("subscriptions", "modify-message-ack-deadline", "sub", f"--ack-ids={first['ackId']}", "--ack-deadline=0")
    (second,) = gcloud("subscriptions", "pull", "sub", "--auto-ack")
    assert second["message"]["messageId"] == first["message"]["messageId"]
    gcloud("topics", "publish", "topic", "--message=again")
    (third,) = gcloud("subscriptions", "pull", "sub")
    gcloud("subscriptions", "ack", "sub", f"--ack-ids={third['ackId']}")
    gcloud("topics", "detach-subscription", "sub")
    described = gcloud("subscriptions", "describe", "sub")
    assert (described["topic"], described["ackDeadlineSeconds"]) == (f"{project}/topics/topic", 20)
    assert described["detached"] is True
    gcloud("subscriptions", "delete", "sub")


def test_a_push_subscription(gcloud: Gcloud, project: str) -> None:
    """D2, A8: created with all flags, one of them cleared, switched to another endpoint, to pull, and back."""
    gcloud("topics", "create", "topic")
    created = gcloud(
        "subscriptions",
        "create",
        "sub",
        "--topic=topic",
        "--push-endpoint=http://127.0.0.1:9/push",
        "--push-auth-service-account=pusher@example.iam.gserviceaccount.com",
        "--push-auth-token-audience=the-audience",
        "--push-no-wrapper",
        "--push-no-wrapper-write-metadata",
    )
    (created,) = created if isinstance(created, list) else [created]
    config: dict[str, Any] = {
        "pushEndpoint": "http://127.0.0.1:9/push",
        "oidcToken": {
            "serviceAccountEmail": "pusher@example.iam.gserviceaccount.com",
            "audience": "the-audience",
        },
        "noWrapper": {"writeMetadata": True},
    }
    assert created["pushConfig"] == config
    gcloud("subscriptions", "update", "sub", "--clear-push-no-wrapper-config")
    del config["noWrapper"]
    assert gcloud("subscriptions", "describe", "sub")["pushConfig"] == config
    gcloud("subscriptions", "modify-push-config", "sub", "--push-endpoint=https://127.0.0.1:9/other")
    assert gcloud("subscriptions", "describe", "sub")["pushConfig"] == {"pushEndpoint": "https://127.0.0.1:9/other"}
    gcloud("subscriptions", "modify-push-config", "sub", "--push-endpoint=")
    assert gcloud("subscriptions", "describe", "sub").get("pushConfig", {}) == {}
    gcloud("topics", "publish", "topic", "--message=pulled")
    (received,) = gcloud("subscriptions", "pull", "sub", "--auto-ack")
    assert received["message"]["data"] == "cHVsbGVk"


def test_a_seek_to_a_time(gcloud: Gcloud, project: str) -> None:
    """D2, A9: what the answer says beyond Google's is no fault to it."""
    gcloud("topics", "create", "topic")
    gcloud("subscriptions", "create", "sub", "--topic=topic", "--retain-acked-messages")
    gcloud("topics", "publish", "topic", "--message=again")
    assert len(gcloud("subscriptions", "pull", "sub", "--auto-ack")) == 1
    gcloud("subscriptions", "seek", "sub", "--time=-p1d")
    (again,) = gcloud("subscriptions", "pull", "sub", "--auto-ack")
    assert again["message"]["data"] == "YWdhaW4="
