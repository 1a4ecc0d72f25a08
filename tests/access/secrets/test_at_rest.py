"""What is secret stands encrypted in the database, and is as good as before."""

import asyncio
import base64
import logging
import re
import secrets as random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from broker.access.secrets.keys import format_keys, make_key
from tests.cli.processes import run_broker
from tests.fixtures.access import guarded
from tests.fixtures.broker import Json, eventually, message
from tests.fixtures.pusher import Call, Pushing, running_pusher

pytestmark = [pytest.mark.slow, pytest.mark.ci]

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def new_secret() -> str:
    return f"whsec_{base64.b64encode(random.token_bytes(32)).decode()}"


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    return new_file(tmp_path)


def new_file(directory: Path) -> str:
    path = directory / f"{random.token_hex(4)}.key"
    path.write_text(format_keys([make_key()]))
    return str(path)


def lines_of(file: str) -> list[str]:
    return Path(file).read_text().splitlines()


def add_lines(file: str, lines: list[str]) -> None:
    Path(file).write_text("\n".join([*lines_of(file), *lines]))


def copy_lines(source: str, target: str) -> None:
    Path(target).write_text(Path(source).read_text())


def mode_of(file: str) -> int:
    return Path(file).stat().st_mode & 0o777


async def rotate(*options: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(run_broker, "secrets", "rotate", *options)


def signing(*webhook_secrets: str, **push: Any) -> Json:
    return {"extensions": {"push": {"webhookSecrets": webhook_secrets, **push}}}


async def stored(pushing: Pushing) -> dict[str, list[str]]:
    """All that is secret, by table, as text."""
    return {
        "subscriptions": [
            secret
            for (row,) in await pushing.rows(
                "SELECT settings #> '{extensions,push,webhookSecrets}' FROM subscriptions"
            )
            for secret in row or ()
        ],
        "signing_keys": [row for (row,) in await pushing.rows("SELECT private_key FROM signing_keys")],
        "access_token_keys": [
            row for (row,) in await pushing.rows("SELECT encode(secret, 'escape') FROM access_token_keys")
        ],
    }


def key_ids(found: dict[str, list[str]]) -> set[str]:
    """Which keys have encrypted it; "" stands for clear text."""
    matches = [re.match("enc1:([0-9a-f]{8}):", text) for texts in found.values() for text in texts]
    return {match[1] if match else "" for match in matches}


def assert_signed(call: Call, *webhook_secrets: str) -> None:
    for secret in webhook_secrets:
        Webhook(secret).verify(call.request.body, dict(call.request.headers))


async def pushed(pushing: Pushing, text: str) -> Call:
    before = len(pushing.far_side.calls)
    pushing.far_side.answers = lambda _: 200
    await pushing.rest.publish(message(text))
    return (await pushing.far_side.wait_for(before + 1))[-1]


def said(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if all(word in line for word in words)]


async def test_no_row_ever_has_a_secret_and_fingerprints_are_of_the_clear_text(
    database_url: str, key_file: str, tmp_path: Path
) -> None:
    first, second = new_secret(), new_secret()
    async with running_pusher(database_url, secrets_key_file=key_file) as pushing:
        await pushing.subscribe(**signing(first))
        path = pushing.rest.subscription()
        shown = await pushing.rest.ok("GET", path)
        assert_signed(await pushed(pushing, "1"), first)
        body = {"subscription": {"name": path, "labels": {"a": "b"}}, "updateMask": "labels"}
        assert (await pushing.rest.ok("PATCH", path, body))["extensions"] == shown["extensions"]
        assert_signed(await pushed(pushing, "2"), first)
        body = {"subscription": {"name": path, **signing(second, first)}, "updateMask": "extensions"}
        changed = await pushing.rest.ok("PATCH", path, body)
        fingerprints = changed["extensions"]["push"]["webhookSecretFingerprints"]
        assert fingerprints[1:] == shown["extensions"]["push"]["webhookSecretFingerprints"]
        config = {"pushEndpoint": "http://far.example/other"}
        await pushing.rest.ok("POST", f"{path}:modifyPushConfig", {"pushConfig": config})
        await eventually(lambda: pushing.endpoint.subscription.push_config.endpoint.endswith("other"))
        assert_signed(await pushed(pushing, "3"), first, second)
        found = await stored(pushing)
        assert len(found["subscriptions"]) == 2
        assert found["signing_keys"]
        assert "" not in key_ids(found)
        everything = str(await pushing.rows("SELECT s::text FROM subscriptions s"))
        assert first not in everything
        assert second not in everything
    async with running_pusher(database_url) as pushing:  # without the key they are shown all the same
        assert (await pushing.rest.ok("GET", path))["extensions"] == changed["extensions"]


async def test_access_tokens_hold_on_every_process_and_their_keys_are_encrypted(
    clone: Callable[[], Any], key_file: str
) -> None:
    with clone() as database_url:
        async with guarded(database_url, secrets_key_file=key_file) as broker:
            assertion = broker.token(aud="https://oauth2.googleapis.com/token", scope="x")
            answer = await broker.client.post("/token", data={"grant_type": GRANT, "assertion": assertion})
            headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
            async with broker.database.connection() as connection:
                rows = await (await connection.execute(b"SELECT secret FROM access_token_keys")).fetchall()
            assert rows
            assert all(bytes(secret).startswith(b"enc1:") for (secret,) in rows)
            async with running_pusher(database_url, secrets_key_file=key_file, auth="required") as other:
                response = await other.rest.call("GET", "projects/p/topics", headers=headers)
                assert response.status_code == 200


async def test_rows_from_before_are_read_and_are_encrypted_once_with_one_line(
    database_url: str, key_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    secret = new_secret()
    async with running_pusher(database_url) as pushing:
        await pushing.subscribe(**signing(secret))
        assert key_ids(await stored(pushing)) == {""}
        keys = (await pushing.rest.client.get("/.well-known/jwks.json")).json()
    caplog.set_level("INFO", "broker")
    async with running_pusher(database_url, secrets_key_file=key_file) as pushing:
        assert "" not in key_ids(await stored(pushing))
        assert (await pushing.rest.client.get("/.well-known/jwks.json")).json() == keys
        await eventually(lambda: pushing.endpoints)
        assert_signed(await pushed(pushing, "1"), secret)
        assert await pushing.broker.workers["secrets"].run_once() == 0
    assert len(said(caplog, "2 secrets in the database were in clear text; now encrypted")) == 1


async def test_everything_is_written_in_clear_text_again_for_a_broker_that_cannot_read_it(
    database_url: str, key_file: str
) -> None:
    secret = new_secret()
    options = ("--database-url", database_url, "--secrets-key-file", key_file)
    async with running_pusher(database_url, secrets_key_file=key_file) as pushing:
        await pushing.subscribe(**signing(secret))
        shown = await pushing.rest.ok("GET", pushing.rest.subscription())
        refused = await asyncio.to_thread(run_broker, "secrets", "decrypt", *options)
        assert (refused.returncode, "stop all of them first" in refused.stderr) == (1, True)
    done = await asyncio.to_thread(run_broker, "secrets", "decrypt", *options)
    assert (done.returncode, "2 secrets are in clear text" in done.stdout) == (0, True), done.stderr
    async with running_pusher(database_url) as pushing:
        assert key_ids(await stored(pushing)) == {""}
        assert await pushing.rest.ok("GET", pushing.rest.subscription()) == shown
        await eventually(lambda: pushing.endpoints)
        assert_signed(await pushed(pushing, "1"), secret)


async def test_a_wrong_key_holds_back_what_must_be_signed_and_nothing_else(
    database_url: str, key_file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret, wrong = new_secret(), new_file(tmp_path)
    oidc = {"pushEndpoint": "http://far.example/oidc", "oidcToken": {"serviceAccountEmail": "a@b.example"}}
    async with running_pusher(database_url, secrets_key_file=key_file) as pushing:
        await pushing.subscribe(**signing(secret))
        await pushing.subscribe("plain", "http://far.example/plain")
        await pushing.rest.create_subscription("oidc", pushConfig=oidc)
    caplog.set_level("INFO", "broker")
    async with running_pusher(database_url, secrets_key_file=wrong) as pushing:
        plain = pushing.rest.subscription("plain")
        await eventually(lambda: plain in pushing.endpoints)
        call = await pushed(pushing, "held")
        assert call.request.url.endswith("/plain")
        await pushing.settled("plain")
        assert set(pushing.endpoints) == {plain}
        for name in ("sub", "oidc"):
            line = f"pushes of {pushing.rest.subscription(name)} wait until what signs them can be decrypted"
            [reported] = said(caplog, line)
            assert "--secrets-key-file" in reported
        assert len(said(caplog, "secrets in the database cannot be decrypted")) == 1
        assert await pushing.rows("SELECT FROM delivery_attempts") == [], "none was tried, so none is counted"
        add_lines(wrong, lines_of(key_file))  # it is back
        await pushing.broker.workers["secrets"].run_once()
        await pushing.broker.signer.refresh()
        pushing.broker.pusher.resource_changed(None)
        calls = {call.request.url.rpartition("/")[2]: call for call in await pushing.far_side.wait_for(3)}
        assert_signed(calls["push"], secret)
        assert calls["oidc"].request.headers["Authorization"].startswith("Bearer ey")
        assert {call.text for call in calls.values()} == {"held"}
    assert len(said(caplog, "are signed again")) == 2
    assert secret not in caplog.text


async def test_a_key_that_is_taken_away_while_the_broker_runs_stops_no_other_push(
    database_url: str, key_file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker")
    async with running_pusher(database_url, secrets_key_file=key_file) as pushing:
        await pushing.subscribe(**signing(new_secret()))
        await pushing.subscribe("plain", "http://far.example/plain")
        copy_lines(new_file(tmp_path), key_file)
        await pushing.broker.workers["secrets"].run_once()
        await pushing.rest.ok("POST", f"{pushing.rest.subscription()}:resumePush", {})  # it is read again
        await eventually(lambda: set(pushing.endpoints) == {pushing.rest.subscription("plain")})
        assert (await pushed(pushing, "1")).request.url.endswith("/plain")
    assert len(said(caplog, "wait until what signs them can be decrypted")) == 1
    assert said(caplog, "background worker") == []


async def test_keys_are_rotated_while_brokers_run(database_url: str, key_file: str) -> None:
    first, second = new_secret(), new_secret()
    options = ("--database-url", database_url, "--secrets-key-file", key_file)
    async with (
        running_pusher(database_url, secrets_key_file=key_file) as one,
        running_pusher(database_url, "projects/two", secrets_key_file=key_file) as other,
    ):
        await one.rest.create_topic()
        await one.rest.create_subscription(pushConfig={"pushEndpoint": "http://far.example/p"}, **signing(first))
        before = key_ids(await stored(one))
        done = await rotate(*options)
        assert done.returncode == 0, done.stderr
        [after] = key_ids(await stored(one))
        assert {after} != before
        assert f"2 secrets are encrypted with the key {after}" in done.stdout
        assert mode_of(key_file) == 0o600
        # Who has not read the file since then encrypts with the old key, and all can read it.
        await other.rest.create_topic()
        await other.rest.create_subscription(pushConfig={"pushEndpoint": "http://far.example/p"}, **signing(second))
        assert key_ids(await stored(one)) - before == {after}
        for side in (one, other):
            side.far_side.answers = lambda _: 200
        await one.rest.publish(message("1"))
        await other.rest.publish(message("2"))
        await eventually(lambda: len(one.far_side.calls + other.far_side.calls) == 2)
        calls = {call.text: call for call in one.far_side.calls + other.far_side.calls}
        assert_signed(calls["1"], first)
        assert_signed(calls["2"], second)
        for _ in range(2):
            assert (await rotate(*options)).returncode == 0
        [last] = key_ids(await stored(one))
        assert last not in {after, *before}
        lines = lines_of(key_file)
        assert len(lines) == 2, "what is in use nowhere is gone, but for the last one"
        assert (await rotate("--keep-file", *options)).returncode == 0
        assert (lines_of(key_file), key_ids(await stored(one))) == (lines, {last})


async def test_a_lost_key_is_said_and_what_it_encrypted_can_be_dropped(
    database_url: str, key_file: str, tmp_path: Path
) -> None:
    async with running_pusher(database_url, secrets_key_file=key_file) as pushing:
        await pushing.subscribe(**signing(new_secret()))
    options = ("--database-url", database_url, "--secrets-key-file", new_file(tmp_path))
    refused = await rotate(*options)
    assert refused.returncode == 1
    assert "--discard-unreadable" in refused.stderr
    dropped = await rotate("--discard-unreadable", *options)
    assert dropped.returncode == 0, dropped.stderr
    assert "projects/p/subscriptions/sub: its webhook secrets are lost; set new ones" in dropped.stdout
    async with running_pusher(database_url, secrets_key_file=options[-1]) as pushing:
        assert (await pushing.rest.client.get("/.well-known/jwks.json")).json()["keys"]
        secret, path = new_secret(), pushing.rest.subscription()
        body = {"subscription": {"name": path, **signing(secret)}, "updateMask": "extensions"}
        await pushing.rest.ok("PATCH", path, body)
        await eventually(lambda: pushing.endpoints)
        assert_signed(await pushed(pushing, "1"), secret)


async def test_what_is_encrypted_is_not_taken_from_a_caller(database_url: str, key_file: str) -> None:
    async with running_pusher(database_url, secrets_key_file=key_file) as pushing:
        await pushing.subscribe(**signing(new_secret()))
        [sealed] = (await stored(pushing))["subscriptions"]
        body = {"topic": pushing.rest.topic(), **signing(sealed)}
        code, text = await pushing.rest.error("PUT", pushing.rest.subscription("copy"), body)
        assert code == "INVALID_ARGUMENT"
        assert sealed not in text


async def test_the_log_has_no_key_token_or_secret_at_debug(
    clone: Callable[[], Any], key_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with clone() as database_url:
        async with guarded(database_url, secrets_key_file=key_file) as broker:
            made = await broker.ok("POST", "projects/p/apiKeys", {"displayName": "k", "roles": ["roles/viewer"]})
            key, secret = made["keyString"], new_secret()
            for shown in (key, f"{key}x"):
                for path in ("projects/p/topics", "projects/p/nonsense"):
                    await broker.call("GET", path, params={"key": shown}, headers={})
            assertion = broker.token(aud="https://oauth2.googleapis.com/token", scope="x")
            token = (await broker.client.post("/token", data={"grant_type": GRANT, "assertion": assertion})).json()
            access = token["access_token"]
            await broker.call("GET", "projects/p/topics", headers={"Authorization": f"Bearer {access}"})
            await broker.call("GET", "projects/p/topics", headers={"Authorization": f"Bearer {access}x"})
            await broker.ok("PUT", "projects/p/topics/some-topic", {})
            body = {
                "topic": "projects/p/topics/some-topic",
                "pushConfig": {"pushEndpoint": "http://127.0.0.1:9/p?token=hush"},
            }
            await broker.ok("PUT", "projects/p/subscriptions/some-sub", body | signing(secret))
            await broker.call("PUT", "projects/p/subscriptions/other-sub", body | signing(f"{secret}!"))
    ours = "\n".join(r.getMessage() for r in caplog.records if not r.name.startswith(("httpx", "httpcore")))
    assert "/v1/projects/p/topics 200" in ours, "each call has its line"
    [key_of_file] = lines_of(key_file)
    for hidden in (key, access, assertion, secret, "hush", key_of_file, broker.admin["private_key"]):
        assert hidden not in ours
