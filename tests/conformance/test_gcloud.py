"""`gcloud pubsub`, unchanged (D2).  A call takes a second or two, so each test is a story of a few calls."""

import base64
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


def _one(printed: Any) -> Any:
    """What gcloud prints of one resource: some of its calls make a list of it."""
    (only,) = printed if isinstance(printed, list) else [printed]
    return only


_PROTO = "syntax = 'proto3'; message Message { optional string key = 1; }"
_AVRO = {"type": "record", "namespace": "my.ns", "name": "KeyMsg", "fields": [{"name": "key", "type": "string"}]}


def test_schemas(gcloud: Gcloud, project: str, tmp_path: Path) -> None:
    """D2, A11: validate, create, commit from a file, list and describe revisions, roll back, delete."""
    name = f"{project}/schemas/key-schema"
    definition = json.dumps(_AVRO)
    gcloud("schemas", "validate-schema", f"--definition={definition}", "--type=AVRO")
    created = _one(gcloud("schemas", "create", "key-schema", f"--definition={definition}", "--type=AVRO"))
    assert (created["name"], created["type"], created["definition"]) == (name, "AVRO", definition)
    file = tmp_path / "key.avsc"
    file.write_text(json.dumps(_AVRO | {"doc": "the second"}))
    second = _one(gcloud("schemas", "commit", "key-schema", f"--definition-file={file}", "--type=avro"))
    listed = gcloud("schemas", "list-revisions", "key-schema", "--view=full")
    assert [(each["revisionId"], each["definition"]) for each in listed] == [
        (second["revisionId"], file.read_text()),
        (created["revisionId"], definition),
    ]
    assert gcloud("schemas", "describe", f"key-schema@{created['revisionId']}") == created
    rolled = _one(gcloud("schemas", "rollback", "key-schema", f"--revision-id={created['revisionId']}"))
    assert rolled["definition"] == definition
    gcloud("schemas", "delete-revision", f"key-schema@{second['revisionId']}")
    assert [each["name"] for each in gcloud("schemas", "list")] == [name]
    good = ("schemas", "validate-message", "--message-encoding=JSON", "--schema-name=key-schema")
    gcloud(*good, '--message={"key": "my-key"}')
    with pytest.raises(AssertionError, match="Message failed schema validation"):
        gcloud(*good, '--message={"key": 1}')
    gcloud("schemas", "delete", "key-schema")
    assert gcloud("schemas", "list") == []


def test_a_topic_with_a_schema(gcloud: Gcloud, project: str) -> None:
    """D2, A11: created with one, by its short name; published to, pulled, bound to a revision, cleared."""
    created = _one(gcloud("schemas", "create", "keys", f"--definition={_PROTO}", "--type=protocol-buffer"))
    inline = ("--message-encoding=JSON", f"--definition={_PROTO}", "--type=protocol-buffer")
    gcloud("schemas", "validate-message", '--message={"key": "my-key"}', *inline)
    gcloud("topics", "create", "topic", "--schema=keys", "--message-encoding=json")
    settings = {"schema": f"{project}/schemas/keys", "encoding": "JSON"}
    assert gcloud("topics", "describe", "topic")["schemaSettings"] == settings
    gcloud("subscriptions", "create", "sub", "--topic=topic")
    gcloud("topics", "publish", "topic", '--message={"key": "my-key"}')
    with pytest.raises(AssertionError, match=r"Message failed schema validation: messages\[0\]"):
        gcloud("topics", "publish", "topic", '--message={"lock": "my-key"}')
    (received,) = gcloud("subscriptions", "pull", "sub", "--auto-ack")
    assert received["message"]["attributes"] == {
        "googclient_schemaencoding": "JSON",
        "googclient_schemaname": f"{project}/schemas/keys",
        "googclient_schemarevisionid": created["revisionId"],
    }
    bound = (f"--first-revision-id={created['revisionId']}", f"--last-revision-id={created['revisionId']}")
    gcloud("topics", "update", "topic", "--schema=keys", "--message-encoding=binary", *bound)
    changed = gcloud("topics", "describe", "topic")["schemaSettings"]
    ids = {"firstRevisionId": created["revisionId"], "lastRevisionId": created["revisionId"]}
    assert changed == settings | {"encoding": "BINARY"} | ids
    gcloud("topics", "update", "topic", "--clear-schema-settings")
    assert "schemaSettings" not in gcloud("topics", "describe", "topic")


def test_message_transforms(gcloud: Gcloud, tmp_path: Path) -> None:
    """D2, A11: validated and tried from files, set on a topic and a subscription, at work, changed, cleared."""
    code = "function shout(message, metadata) {\n  message.data = message.data.toUpperCase();\n  return message;\n}"
    shout = {"javascriptUdf": {"functionName": "shout", "code": code}}
    one, several, other = tmp_path / "one.json", tmp_path / "several.json", tmp_path / "other.yaml"
    one.write_text(json.dumps(shout))
    several.write_text(json.dumps([shout]))
    other.write_text(
        "- javascriptUdf:\n    functionName: drop\n    code: |\n      function drop(message) {\n"
        "        return message.data === 'NO' ? null : message;\n      }\n"
    )
    gcloud("message-transforms", "validate", f"--message-transform-file={one}")
    tried = gcloud("message-transforms", "test", "--message=a", f"--message-transforms-file={several}")
    assert tried == [{"data": "A"}]
    one.write_text(json.dumps({"javascriptUdf": {"functionName": "shout", "code": "function shout( {"}}))
    with pytest.raises(AssertionError, match="SyntaxError"):
        gcloud("message-transforms", "validate", f"--message-transform-file={one}")

    gcloud("topics", "create", "topic", f"--message-transforms-file={several}")
    assert gcloud("topics", "describe", "topic")["messageTransforms"] == [shout]
    gcloud("subscriptions", "create", "sub", "--topic=topic", f"--message-transforms-file={other}")
    assert gcloud("message-transforms", "test", "--message=b", "--topic=topic") == [{"data": "B"}]
    gcloud("topics", "publish", "topic", "--message=no")
    gcloud("topics", "publish", "topic", "--message=yes")
    (received,) = gcloud("subscriptions", "pull", "sub", "--auto-ack", "--limit=10")
    assert base64.b64decode(received["message"]["data"]) == b"YES"
    gcloud("subscriptions", "update", "sub", "--clear-message-transforms")
    assert "messageTransforms" not in gcloud("subscriptions", "describe", "sub")
