"""API keys: told once, kept as a hash, worth nothing once deleted, and never in a line of the log."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from broker.access.credentials.authenticator import Shown
from broker.access.principals.caller import Grant
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json

ROLE = "roles/pubsub.publisher"


async def _made(broker: Guarded, **body: object) -> Json:
    made: Json = await broker.ok("POST", f"{broker.project}/apiKeys", {"roles": [ROLE]} | body)
    return made


async def test_a_key_is_told_once_and_listed_without_its_text(broker: Guarded) -> None:
    made = await _made(broker, displayName="sensors")
    text = made.pop("keyString")
    assert made["displayName"] == "sensors"
    assert made["roles"] == [ROLE]
    assert await broker.ok("GET", made["name"]) == made
    assert (await broker.ok("GET", f"{broker.project}/apiKeys"))["keys"] == [made]
    async with broker.database.connection() as connection:
        rows = await (await connection.execute("SELECT * FROM api_keys")).fetchall()
    assert text not in str(rows)


async def test_a_key_is_shown_by_a_header_or_in_the_query_until_it_is_deleted(broker: Guarded) -> None:
    made, other = await _made(broker), await _made(broker)
    path = f"{broker.project}/topics"

    async def statuses(key: Json) -> list[int]:
        text = key["keyString"]
        shown = [
            await broker.call("GET", path, headers={"X-Goog-Api-Key": text}),
            await broker.call("GET", f"{path}?pageSize=1&key={text}", headers={}),
        ]
        return [response.status_code for response in shown]

    assert 401 not in await statuses(made)
    assert await broker.ok("DELETE", made["name"]) == {}
    assert await statuses(made) == [401, 401]
    assert 401 not in await statuses(other)
    assert (await broker.call("DELETE", made["name"])).status_code == 404


async def test_a_key_may_do_what_its_roles_allow_on_its_project_or_on_some_resources(broker: Guarded) -> None:
    topic = f"{broker.project}/topics/sensors"
    for body, resource in (({}, broker.project), ({"resources": [topic]}, topic)):
        made = await _made(broker, **body)
        assert broker.broker.guard.access is not None
        caller = await broker.broker.guard.access.authenticator.caller(Shown(api_key=made["keyString"].encode()))
        assert caller.grants == (Grant(frozenset({ROLE}), resource),)
        assert caller.confined
        assert caller.credential == f"apiKey:{made['name']}"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"roles": []}, "roles"),
        ({"roles": ["publisher"]}, "roles"),
        ({"roles": [ROLE] * 21}, "roles"),
        ({"displayName": "x" * 64}, "display_name"),
        ({"displayName": "a\0b"}, "display_name"),
        ({"resources": ["projects/other/topics/t"]}, "resources"),
    ],
)
async def test_a_key_that_cannot_be_is_refused_by_its_field(broker: Guarded, body: Json, field: str) -> None:
    response = await broker.call("POST", f"{broker.project}/apiKeys", {"roles": [ROLE]} | body)
    assert response.status_code == 400
    assert field in response.json()["error"]["message"]
    assert await broker.ok("GET", f"{broker.project}/apiKeys") == {}


@pytest.mark.parametrize("shown", ["x", "brk-" + "x" * 43, "x" * 5_000])
async def test_what_is_no_key_is_refused_as_google_does_and_not_repeated(broker: Guarded, shown: str) -> None:
    response = await broker.call("GET", f"{broker.project}/topics", headers={"X-Goog-Api-Key": shown})
    assert response.status_code == 401
    assert response.json()["error"]["details"][0]["reason"] == "API_KEY_INVALID"
    assert len(shown) < 5 or shown not in response.text


async def test_no_credential_is_in_the_log(clone: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with clone() as database_url:
        async with guarded(database_url) as broker:
            made = await _made(broker)
            path, bearer = f"{broker.project}/topics", broker.bearer()
            await broker.call("GET", f"{path}?key={made['keyString']}", headers={})
            await broker.call("GET", f"{path}?key=wrong-{made['keyString']}", headers={})
            await broker.call("GET", path, headers=bearer)
    written = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("broker"))
    assert f"GET /v1/{path} 401" in written
    assert made["keyString"] not in written
    assert bearer["Authorization"].partition(" ")[2] not in written
