"""What callers learn of themselves."""

from datetime import UTC, datetime

from broker.access.credentials.tokens import LEEWAY
from broker.model.timestamps import format_timestamp
from tests.fixtures.access import Guarded


async def test_a_service_account_learns_its_principal_key_and_expiry(broker: Guarded) -> None:
    key = await broker.key(await broker.account(role=""))
    issued = int(broker.now.timestamp())
    answer = await broker.ok("GET", "whoami", headers=broker.bearer(key, iat=issued, exp=issued + 600))
    member = f"serviceAccount:{key['client_email']}"
    assert answer == {
        "expireTime": format_timestamp(datetime.fromtimestamp(issued + 600, UTC) + LEEWAY),
        "principal": member,
        "members": ["allAuthenticatedUsers", "allUsers", member],
        "credential": {"kind": "SERVICE_ACCOUNT_KEY", "id": f"key:{key['private_key_id']}"},
    }


async def test_an_api_key_does_not_expire_and_is_not_shown(broker: Guarded) -> None:
    made = await broker.ok("POST", "projects/guarded/apiKeys", {"roles": ["roles/pubsub.publisher"]})
    answer = await broker.call("GET", "whoami", headers={"X-Goog-Api-Key": made["keyString"]})
    name = f"apiKey:{made['name']}"
    assert answer.json()["credential"] == {"kind": "API_KEY", "id": name}
    assert answer.json()["principal"] == name
    assert "expireTime" not in answer.json()
    assert made["keyString"] not in answer.text


async def test_who_shows_nothing_is_asked_for_a_credential(broker: Guarded) -> None:
    assert (await broker.call("GET", "whoami", headers={})).status_code == 401
