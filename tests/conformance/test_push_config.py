"""Push configs and the options of pushing: what is accepted and given back, what is refused and how."""

import asyncio
import base64
import hashlib
from typing import Any

import httpx
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.model.errors import FailedPrecondition
from broker.model.push_config import PushConfig
from tests.fixtures.broker import Json, Rest, eventually, text
from tests.fixtures.log import Log

ENDPOINT = "http://127.0.0.1:9/push"  # nobody listens there
SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
OTHER_SECRET = "whsec_" + base64.b64encode(b"t" * 32).decode()
FINGERPRINT, OTHER_FINGERPRINT = (hashlib.sha256(s.encode()).hexdigest()[:8] for s in (SECRET, OTHER_SECRET))
PUSH = {"pushConfig": {"pushEndpoint": ENDPOINT}}


async def modify(rest: Rest, config: Json) -> Json:
    return await rest.ok("POST", f"{rest.subscription()}:modifyPushConfig", {"pushConfig": config})


async def patch(rest: Rest, mask: str, **fields: Any) -> Json:
    return await rest.ok("PATCH", rest.subscription(), {"subscription": fields, "updateMask": mask})


async def refusals(rest: Rest, **fields: Any) -> set[tuple[str, str]]:
    """Code and message of a creation with these fields, and of the changes that would come to the same."""
    await rest.create_topic()
    await rest.create_subscription("other")
    body = {"subscription": fields, "updateMask": ",".join(fields)}
    errors = {
        await rest.error("PUT", rest.subscription(), {"topic": rest.topic(), **fields}),
        await rest.error("PATCH", rest.subscription("other"), body),
    }
    if fields.keys() == {"pushConfig"}:
        errors.add(await rest.error("POST", f"{rest.subscription('other')}:modifyPushConfig", fields))
    assert (await rest.error("GET", rest.subscription()))[0] == "NOT_FOUND"
    assert (await rest.ok("GET", rest.subscription("other")))["pushConfig"] == {}, "nothing is changed"
    return errors


CONFIGS: list[Json] = [
    {"pushEndpoint": ENDPOINT},
    {"pushEndpoint": "https://bücher.example/push?token=a%20b"},
    {"pushEndpoint": ENDPOINT, "attributes": {"x-goog-version": "v1"}},
    {"pushEndpoint": ENDPOINT, "attributes": {"x-goog-version": "v1beta2", "other": ""}},
    {"pushEndpoint": ENDPOINT, "attributes": {"x-goog-version": "v1beta1"}},
    {"pushEndpoint": ENDPOINT, "oidcToken": {"serviceAccountEmail": "a@b.example"}},
    {"pushEndpoint": ENDPOINT, "oidcToken": {"serviceAccountEmail": "a@b.example", "audience": "who"}},
    {"pushEndpoint": ENDPOINT, "pubsubWrapper": {}},
    {"pushEndpoint": ENDPOINT, "noWrapper": {}},
    {"pushEndpoint": ENDPOINT, "noWrapper": {"writeMetadata": True}},
    {"attributes": {"x-goog-version": "v1"}},
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
async def test_a_push_config_is_given_back_as_it_was_set(rest: Rest, config: Json) -> None:
    """A8: at creation, by modifyPushConfig and by patch, in every way of reading it."""
    await rest.create_topic()
    assert (await rest.create_subscription(pushConfig=config))["pushConfig"] == config
    await rest.create_subscription("other")
    other = f"{rest.subscription('other')}:modifyPushConfig"
    assert await rest.ok("POST", other, {"pushConfig": config}) == {}
    assert (await rest.ok("GET", rest.subscription("other")))["pushConfig"] == config
    assert (await patch(rest, "pushConfig"))["pushConfig"] == {}
    assert (await patch(rest, "push_config", pushConfig=config))["pushConfig"] == config
    listed = (await rest.ok("GET", f"{rest.project}/subscriptions"))["subscriptions"]
    assert [s["pushConfig"] for s in listed] == [config, config]


async def test_a_push_config_is_understood_in_snake_case(rest: Rest) -> None:
    """A12: and given back in camelCase."""
    await rest.create_topic()
    body = {
        "push_endpoint": ENDPOINT,
        "oidc_token": {"service_account_email": "a@b.example"},
        "no_wrapper": {"write_metadata": "true"},
        "pubsub_wrapper": None,
    }
    options = {"messages_per_second": "2.5", "max_outstanding_requests": "3", "webhook_secrets": [SECRET]}
    created = await rest.create_subscription(push_config=body, extensions={"push": options})
    assert created["pushConfig"] == {
        "pushEndpoint": ENDPOINT,
        "oidcToken": {"serviceAccountEmail": "a@b.example"},
        "noWrapper": {"writeMetadata": True},
    }
    assert created["extensions"]["push"] == {
        "messagesPerSecond": 2.5,
        "maxOutstandingRequests": 3,
        "webhookSecretFingerprints": [FINGERPRINT],
    }


REFUSED: list[tuple[Json, str]] = [
    ({"pushEndpoint": "ftp://example.com"}, "Invalid push endpoint given (endpoint=ftp://example.com). Refer to "),
    ({"pushEndpoint": "example.com"}, "Invalid push endpoint given (endpoint=example.com). Refer to "),
    ({"pushEndpoint": "https://"}, "Invalid push endpoint given (endpoint=https://). Refer to "),
    ({"pushEndpoint": "http://u:p@host/"}, "must not have a user or a password"),
    ({"pushEndpoint": "http://host/\0"}, "Invalid push endpoint given"),
    ({"pushEndpoint": "http://host/" + "x" * 5_000}, "longer than 2048"),
    (
        {"pushEndpoint": ENDPOINT, "attributes": {"x-goog-version": "v1beta3"}},
        "Invalid push endpoint version given in push config (version=v1beta3).",
    ),
    (
        {"pushEndpoint": ENDPOINT, "attributes": {"x-goog-version": ""}},
        "Invalid push endpoint version given in push config (version=).",
    ),
    ({"attributes": {"x-goog-version": "v2"}}, "Invalid push endpoint version"),
    ({"pushEndpoint": ENDPOINT, "attributes": {"a": "\0"}}, "U+0000"),
    ({"pushEndpoint": ENDPOINT, "attributes": {"\0": "a"}}, "U+0000"),
    ({"pushEndpoint": ENDPOINT, "attributes": {"": "a"}}, "pushConfig.attributes"),
    ({"pushEndpoint": ENDPOINT, "attributes": {"a": "x" * 1_025}}, "pushConfig.attributes"),
    ({"pushEndpoint": ENDPOINT, "attributes": {str(n): "a" for n in range(101)}}, "pushConfig.attributes"),
    ({"pushEndpoint": ENDPOINT, "oidcToken": {}}, "serviceAccountEmail"),
    ({"pushEndpoint": ENDPOINT, "oidcToken": {"audience": "a"}}, "serviceAccountEmail"),
    ({"pushEndpoint": ENDPOINT, "oidcToken": {"serviceAccountEmail": "me"}}, "serviceAccountEmail"),
    ({"pushEndpoint": ENDPOINT, "oidcToken": {"serviceAccountEmail": "a@b\0"}}, "serviceAccountEmail"),
    ({"pushEndpoint": ENDPOINT, "oidcToken": {"serviceAccountEmail": "a@" + "b" * 999}}, "serviceAccountEmail"),
    (
        {"pushEndpoint": ENDPOINT, "oidcToken": {"serviceAccountEmail": "a@b", "audience": "x" * 2_049}},
        "oidcToken.audience",
    ),
    (
        {"pushEndpoint": ENDPOINT, "oidcToken": {"serviceAccountEmail": "a@b", "audience": "\0"}},
        "oidcToken.audience",
    ),
    ({"pushEndpoint": ENDPOINT, "pubsubWrapper": {}, "noWrapper": {}}, "oneof"),
    ({"pushEndpoint": ENDPOINT, "noWrapper": {"metadata": True}}, "Cannot find field"),
    ({"pushEndpoint": ENDPOINT, "pubsubWrapper": {"a": 1}}, "Cannot find field"),
    ({"pushEndpoint": ENDPOINT, "oidcToken": {"serviceAccountEmail": "a@b", "x": 1}}, "Cannot find field"),
    ({"pushEndpoint": ENDPOINT, "endpoint": "x"}, "Cannot find field"),
    ({"pushEndpoint": ["http://host/"]}, "pushEndpoint"),
    ({"pushEndpoint": ENDPOINT, "push_endpoint": ENDPOINT}, "both spellings"),
    ({"noWrapper": {}}, "pushConfig needs a pushEndpoint"),
    ({"oidcToken": {"serviceAccountEmail": "a@b.example"}}, "pushConfig needs a pushEndpoint"),
]


@pytest.mark.parametrize(("config", "expected"), REFUSED, ids=lambda value: str(value)[:80])
async def test_a_push_config_that_is_wrong_is_refused(rest: Rest, config: Json, expected: str) -> None:
    """A8: in the service's words where they are known."""
    errors = await refusals(rest, pushConfig=config)
    assert {code for code, _ in errors} == {"INVALID_ARGUMENT"}
    assert all(expected in message for _, message in errors), errors


async def test_push_and_exactly_once_delivery_exclude_each_other(rest: Rest) -> None:
    """A8: at creation, and whichever of them is set last."""
    await rest.create_topic()
    refused = [
        await rest.error(
            "PUT", rest.subscription("new"), {"topic": rest.topic(), **PUSH, "enableExactlyOnceDelivery": True}
        )
    ]
    await rest.create_subscription(enableExactlyOnceDelivery=True)
    refused.append(await rest.error("POST", f"{rest.subscription()}:modifyPushConfig", PUSH))
    body = {"subscription": PUSH, "updateMask": "pushConfig"}
    refused.append(await rest.error("PATCH", rest.subscription(), body))
    await rest.create_subscription("push", **PUSH)
    body = {"subscription": {"enableExactlyOnceDelivery": True}, "updateMask": "enableExactlyOnceDelivery"}
    refused.append(await rest.error("PATCH", rest.subscription("push"), body))
    for code, message in refused:
        assert code == "INVALID_ARGUMENT"
        assert "enableExactlyOnceDelivery" in message
        assert "pushConfig.pushEndpoint" in message
    both = {"subscription": {**PUSH, "enableExactlyOnceDelivery": False}}
    changed = await rest.ok(
        "PATCH", rest.subscription(), both | {"updateMask": "pushConfig,enableExactlyOnceDelivery"}
    )
    assert changed["pushConfig"] == PUSH["pushConfig"]
    assert (await rest.ok("GET", rest.subscription("push"))).get("enableExactlyOnceDelivery") is None


# --- extensions.push --------------------------------------------------------------------------------------

OPTIONS: Json = {
    "messagesPerSecond": 12.5,
    "maxOutstandingRequests": 7,
    "digest": {"maxMessages": 2, "maxBytes": 3, "maxDelay": "0.500s"},
    "circuitBreaker": {"failureThreshold": 3, "openDuration": "60s"},
}


async def test_the_options_of_pushing_are_given_back_with_and_without_an_endpoint(rest: Rest) -> None:
    """C3, C4, C6: they outlive a switch to pull, and a patch can take them away."""
    await rest.create_topic()
    created = await rest.create_subscription(extensions={"push": OPTIONS})
    assert created["extensions"] == {"push": OPTIONS}
    await modify(rest, {"pushEndpoint": ENDPOINT})
    assert (await rest.ok("GET", rest.subscription()))["extensions"] == {"push": OPTIONS}
    both = {"onePerOrderingKey": True, "push": {"messagesPerSecond": 1}}
    assert (await patch(rest, "extensions", extensions=both))["extensions"] == both
    assert "extensions" not in await patch(rest, "extensions")


async def test_the_options_of_pushing_have_defaults(rest: Rest) -> None:
    """C4, C6: an empty digest is one of 100 messages, 1 MB or 10 s."""
    await rest.create_topic()
    created = await rest.create_subscription(extensions={"push": {"digest": {}, "circuitBreaker": {}}})
    assert created["extensions"] == {
        "push": {"digest": {"maxMessages": 100, "maxBytes": 1_000_000, "maxDelay": "10s"}}
    }
    await rest.create_subscription("plain", extensions={"push": {}})
    assert "extensions" not in await rest.ok("GET", rest.subscription("plain"))


BAD_OPTIONS: list[tuple[Json, str]] = [
    ({"messagesPerSecond": 0}, "extensions.push.messagesPerSecond"),
    ({"messagesPerSecond": -1}, "extensions.push.messagesPerSecond"),
    ({"messagesPerSecond": 1e-9}, "extensions.push.messagesPerSecond"),
    ({"messagesPerSecond": 1_000_001}, "extensions.push.messagesPerSecond"),
    ({"messagesPerSecond": "NaN"}, "messagesPerSecond"),
    ({"messagesPerSecond": "Infinity"}, "messagesPerSecond"),
    ({"messagesPerSecond": "many"}, "messagesPerSecond"),
    ({"maxOutstandingRequests": 0}, "extensions.push.maxOutstandingRequests"),
    ({"maxOutstandingRequests": 10_001}, "extensions.push.maxOutstandingRequests"),
    ({"maxOutstandingRequests": 1.5}, "maxOutstandingRequests"),
    ({"digest": {"maxMessages": 0}}, "extensions.push.digest.maxMessages"),
    ({"digest": {"maxMessages": 1_001}}, "extensions.push.digest.maxMessages"),
    ({"digest": {"maxBytes": 0}}, "extensions.push.digest.maxBytes"),
    ({"digest": {"maxBytes": 10_000_001}}, "extensions.push.digest.maxBytes"),
    ({"digest": {"maxDelay": "0s"}}, "extensions.push.digest.maxDelay"),
    ({"digest": {"maxDelay": "-1s"}}, "extensions.push.digest.maxDelay"),
    ({"digest": {"maxDelay": "3600.001s"}}, "extensions.push.digest.maxDelay"),
    ({"digest": {"maxDelay": "soon"}}, "is not a duration"),
    ({"digest": {"maxAge": "1s"}}, "Cannot find field"),
    ({"circuitBreaker": {"failureThreshold": 0}}, "extensions.push.circuitBreaker.failureThreshold"),
    ({"circuitBreaker": {"failureThreshold": 10_001}}, "extensions.push.circuitBreaker.failureThreshold"),
    ({"circuitBreaker": {"openDuration": "0.9s"}}, "extensions.push.circuitBreaker.openDuration"),
    ({"circuitBreaker": {"openDuration": "3601s"}}, "extensions.push.circuitBreaker.openDuration"),
    ({"webhookSecrets": [SECRET] * 6}, "extensions.push.webhookSecrets"),
    ({"webhookSecrets": SECRET}, "webhookSecrets"),
    ({"webhookSecrets": [FINGERPRINT]}, "extensions.push.webhookSecrets[0]"),
    ({"rateLimit": 1}, "Cannot find field"),
]


@pytest.mark.parametrize(("options", "expected"), BAD_OPTIONS, ids=lambda value: str(value)[:60])
async def test_an_option_out_of_bounds_is_refused_by_name(rest: Rest, options: Json, expected: str) -> None:
    """C3, C4, C6: at creation and by a patch."""
    errors = await refusals(rest, extensions={"push": options})
    assert {code for code, _ in errors} == {"INVALID_ARGUMENT"}
    assert all(expected in message for _, message in errors), errors


async def secrets_of(rest: Rest) -> list[Json]:
    """What the calls that answer with a subscription show of its pushing; no answer has a secret."""
    listed = await rest.ok("GET", f"{rest.project}/subscriptions")
    answers = [
        await rest.ok("GET", rest.subscription()),
        *(s for s in listed["subscriptions"] if s["name"] == rest.subscription()),
    ]
    assert SECRET[6:30] not in str(answers)
    return [answer["extensions"]["push"] for answer in answers]


async def test_webhook_secrets_are_in_no_answer_and_their_fingerprints_are(rest: Rest) -> None:
    """A8: whoever may look at a subscription must not be able to sign for it."""
    await rest.create_topic()
    created = await rest.create_subscription(extensions={"push": {"webhookSecrets": [SECRET, OTHER_SECRET]}})
    shown = {"webhookSecretFingerprints": [FINGERPRINT, OTHER_FINGERPRINT]}
    assert created["extensions"] == {"push": shown}
    assert await secrets_of(rest) == [shown, shown]
    rotated = await patch(rest, "extensions", extensions={"push": {"webhookSecrets": [OTHER_SECRET]}})
    assert rotated["extensions"] == {"push": {"webhookSecretFingerprints": [OTHER_FINGERPRINT]}}


async def test_webhook_secrets_stay_through_changes_that_do_not_give_any(rest: Rest) -> None:
    """A8: what was read can be sent back, whole or changed; who does not know the secrets does not lose them."""
    await rest.create_topic()
    await rest.create_subscription(extensions={"push": {"webhookSecrets": [SECRET]}})
    read = await rest.ok("GET", rest.subscription())
    assert (await patch(rest, "extensions,labels", **read | {"labels": {"a": "b"}}))["extensions"] == read[
        "extensions"
    ]
    read["extensions"]["push"]["messagesPerSecond"] = 3
    changed = await rest.ok("PUT", rest.subscription(), read, params={"updateMask": "extensions"})
    assert changed["extensions"] == read["extensions"]
    await modify(rest, {"pushEndpoint": ENDPOINT})
    for extensions in ({"push": {"webhookSecrets": None}}, {"push": {}}, {}):
        kept = (await patch(rest, "extensions", extensions=extensions))["extensions"]
        assert kept == {"push": {"webhookSecretFingerprints": [FINGERPRINT]}}
    assert "extensions" not in await patch(rest, "extensions", extensions={"push": {"webhookSecrets": []}})


async def test_a_copy_of_a_subscription_without_its_secrets_is_refused(rest: Rest) -> None:
    """A8: rather than that it pushes unsigned, unnoticed."""
    await rest.create_topic()
    await rest.create_subscription("first", extensions={"push": {"webhookSecrets": [SECRET]}})
    copy = await rest.ok("GET", rest.subscription("first")) | {"name": rest.subscription()}
    code, message = await rest.error("PUT", rest.subscription(), copy)
    assert (code, "extensions.push.webhookSecretFingerprints" in message) == ("INVALID_ARGUMENT", True)
    copy["extensions"]["push"]["webhookSecrets"] = [OTHER_SECRET]
    created = await rest.ok("PUT", rest.subscription(), copy)
    assert created["extensions"] == {"push": {"webhookSecretFingerprints": [OTHER_FINGERPRINT]}}


async def test_a_secret_that_is_refused_is_not_repeated_anywhere(rest: Rest) -> None:
    """A8: a slip of the hand must not put it into a log."""
    slips = [SECRET[:-5], SECRET[1:], f"{SECRET} ", f"{SECRET}\0", SECRET.replace("c", "k")]
    for slip in slips:
        for sent in ([slip], [{"secret": slip}], {"secret": slip}, slip):
            response = await rest.call(
                "PUT",
                rest.subscription(),
                {"topic": rest.topic(), "extensions": {"push": {"webhookSecrets": sent}}},
            )
            assert response.status_code == 400
            assert slip.strip(" \0")[6:30] not in response.text


async def test_a_digest_is_refused_with_ordering_and_without_the_wrapper(rest: Rest) -> None:
    """C4: whichever of them is set last; the message names the other."""
    await rest.create_topic()
    digest = {"extensions": {"push": {"digest": {}}}}
    body = {"topic": rest.topic(), "enableMessageOrdering": True, **digest}
    code, message = await rest.error("PUT", rest.subscription(), body)
    assert (code, "enableMessageOrdering" in message) == ("INVALID_ARGUMENT", True)
    unwrapped: Json = {"pushConfig": {"pushEndpoint": ENDPOINT, "noWrapper": {}}}
    code, message = await rest.error("PUT", rest.subscription(), {"topic": rest.topic(), **unwrapped, **digest})
    assert (code, "pushConfig.noWrapper" in message) == ("INVALID_ARGUMENT", True)
    await rest.create_subscription(**digest)
    code, message = await rest.error("POST", f"{rest.subscription()}:modifyPushConfig", unwrapped)
    assert (code, "pushConfig.noWrapper" in message) == ("INVALID_ARGUMENT", True)
    await modify(rest, {"pushEndpoint": ENDPOINT, "pubsubWrapper": {}})


# --- pull and push ----------------------------------------------------------------------------------------


async def test_modify_push_config_switches_between_pull_and_push_and_keeps_the_backlog(rest: Rest) -> None:
    """A8: a pull is refused while it is a push subscription, an ack of what is out is not."""
    await rest.create_topic()
    await rest.create_subscription(ackDeadlineSeconds=600)
    await rest.publish("out", "nacked")
    first, second = await rest.pull()
    await modify(rest, {"pushEndpoint": ENDPOINT})
    for path in (f"{rest.subscription()}:pull", f"{rest.subscription()}/pull"):
        code, message = await rest.error("POST", path, {"maxMessages": 1})
        assert code == "FAILED_PRECONDITION"
        assert "push subscription" in message
    await rest.modify_ack_deadline([second], 300)
    await rest.acknowledge([first])
    await modify(rest, {})
    await rest.modify_ack_deadline([second], 0)
    assert [text(m) for m in await rest.drain()] == ["nacked"]


@pytest.mark.parametrize("body", [None, {}, {"pushConfig": {}}, {"pushConfig": {"pushEndpoint": ""}}], ids=str)
async def test_a_push_config_without_an_endpoint_makes_it_a_pull_subscription(
    rest: Rest, body: Json | None
) -> None:
    """A8: as Google has it."""
    await rest.create_topic()
    await rest.create_subscription(**PUSH)
    assert await rest.ok("POST", f"{rest.subscription()}:modifyPushConfig", body) == {}
    assert (await rest.ok("GET", rest.subscription()))["pushConfig"] == {}
    assert await rest.pull() == []


async def test_a_detached_push_subscription_is_not_pulled_either(rest: Rest) -> None:
    """A2: the refusal says that it is detached."""
    await rest.create_topic()
    await rest.create_subscription(**PUSH)
    await rest.ok("POST", f"{rest.subscription()}:detach")
    code, message = await rest.error("POST", f"{rest.subscription()}:pull", {"maxMessages": 1})
    assert (code, "detached" in message) == ("FAILED_PRECONDITION", True)


async def test_modify_push_config_of_what_is_not_there(rest: Rest) -> None:
    """A12: NOT_FOUND."""
    assert (await rest.error("POST", f"{rest.subscription()}:modifyPushConfig", PUSH))[0] == "NOT_FOUND"


async def test_a_pull_that_waits_ends_when_the_subscription_becomes_a_push_subscription(
    log: Log, database_url: str
) -> None:
    """A8: it would take messages from the endpoint otherwise."""
    broker = Broker(AppConfig(database_url=database_url, pull_wait_seconds=60))
    name = log.subscription.name

    async def never() -> None:
        await asyncio.Event().wait()

    async with broker.running():
        pull = broker.services.pull.pull(name, max_messages=1, return_immediately=False, hung_up=never)
        waiting = asyncio.create_task(pull)
        await eventually(broker.claiming.long_poll.waited_for)
        await broker.services.subscriptions.modify_push_config(name, PushConfig(endpoint=ENDPOINT))
        with pytest.raises(FailedPrecondition):
            await waiting


@pytest.mark.parametrize(
    "hostile",
    [
        {"pushConfig": []},
        {"pushConfig": "x"},
        {"pushConfig": {"pushEndpoint": {"a": 1}}},
        {"pushConfig": {"attributes": [1]}},
        {"pushConfig": {"attributes": {"a": {}}}},
        {"pushConfig": {"oidcToken": "a@b"}},
        {"pushConfig": {"noWrapper": True}},
        {"extensions": {"push": []}},
        {"extensions": {"push": {"messagesPerSecond": {}}}},
        {"extensions": {"push": {"maxOutstandingRequests": 2**40}}},
        {"extensions": {"push": {"digest": {"maxDelay": 5}}}},
        {"extensions": {"push": {"webhookSecrets": [None]}}},
        {"extensions": {"push": {"webhookSecrets": [[SECRET]]}}},
    ],
    ids=str,
)
async def test_what_is_no_push_config_at_all_is_refused_too(rest: Rest, hostile: Json) -> None:
    """A12: by 400, never by a fault of the broker."""
    await rest.create_topic()
    response = await rest.call("PUT", rest.subscription(), {"topic": rest.topic(), **hostile})
    assert response.status_code == httpx.codes.BAD_REQUEST, response.text


async def test_a_lone_surrogate_is_refused(rest: Rest) -> None:
    """A12: JSON can say it, UTF-8 cannot."""
    await rest.create_topic()
    for config in (rb'{"pushEndpoint": "http://h/\ud800"}', rb'{"attributes": {"\udfff": "a"}}'):
        content = b'{"topic": "%s", "pushConfig": %s}' % (rest.topic().encode(), config)
        response = await rest.call("PUT", rest.subscription(), content=content)
        assert response.status_code == httpx.codes.BAD_REQUEST, response.text
