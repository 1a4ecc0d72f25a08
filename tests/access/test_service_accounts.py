"""Service accounts and their keys: made, listed, disabled, deleted; and what their tokens are worth meanwhile."""

from broker.access.credentials import account_rows as service_accounts
from broker.access.versions.version_rows import raise_access_version
from tests.fixtures.access import Guarded
from tests.fixtures.broker import Json, eventually

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


async def _exchange(broker: Guarded, key: Json, **claims: object) -> tuple[int, Json]:
    assertion = broker.token(key, **({"aud": "https://oauth2.googleapis.com/token"} | claims))
    answer = await broker.client.post("/token", data={"grant_type": GRANT, "assertion": assertion})
    return answer.status_code, answer.json()


async def _status(broker: Guarded, headers: dict[str, str]) -> int:
    return (await broker.call("GET", f"{broker.project}/topics", headers=headers)).status_code


async def test_who_shows_nothing_is_told_what_to_show(broker: Guarded) -> None:
    response = await broker.call("GET", f"{broker.project}/topics", headers={})
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == 'Bearer realm="pubsub-broker"'
    error = response.json()["error"]
    assert (error["code"], error["status"]) == (401, "UNAUTHENTICATED")
    assert error["details"][0]["reason"] == "CREDENTIALS_MISSING"


async def test_what_says_that_the_process_lives_is_open(broker: Guarded) -> None:
    for path in ("/healthz", "/readyz", "/.well-known/jwks.json", "/.well-known/openid-configuration"):
        assert (await broker.client.get(path)).status_code == 200, path


async def test_an_account_has_googles_shape_and_is_found_by_its_address_its_id_and_any_project(
    broker: Guarded,
) -> None:
    body = {"accountId": "billing-app", "serviceAccount": {"displayName": "Billing", "description": "pays"}}
    account = await broker.ok("POST", f"{broker.project}/serviceAccounts", body)
    email = "billing-app@guarded.iam.broker.internal"
    assert account == {
        "name": f"projects/guarded/serviceAccounts/{email}",
        "projectId": "guarded",
        "uniqueId": account["uniqueId"],
        "email": email,
        "displayName": "Billing",
        "description": "pays",
        "oauth2ClientId": account["uniqueId"],
    }
    for name in (f"projects/guarded/serviceAccounts/{email}", f"projects/-/serviceAccounts/{account['uniqueId']}"):
        assert await broker.ok("GET", name) == account
    assert (await broker.ok("GET", f"{broker.project}/serviceAccounts"))["accounts"] == [account]
    assert (await broker.call("GET", f"projects/other/serviceAccounts/{email}")).status_code == 404
    assert (await broker.call("POST", f"{broker.project}/serviceAccounts", body)).status_code == 409


async def test_parameters_that_gcloud_and_terraform_send_about_keys_are_accepted(broker: Guarded) -> None:
    account = await broker.account()
    key = await broker.key(account)
    keys = f"{account['name']}/keys"

    async def listed(query: str) -> list[str]:
        return [each["name"] for each in (await broker.ok("GET", f"{keys}?{query}")).get("keys", ())]

    assert await listed("keyTypes=USER_MANAGED") == [key["name"]]
    assert await listed("keyTypes=USER_MANAGED&keyTypes=SYSTEM_MANAGED") == [key["name"]]
    assert await listed("keyTypes=SYSTEM_MANAGED") == []
    refused = await broker.call("GET", f"{keys}?keyTypes=OTHER")
    assert (refused.status_code, "keyTypes=OTHER" in refused.text) == (400, True)
    shown = await broker.ok("GET", f"{key['name']}?publicKeyType=TYPE_X509_PEM_FILE")
    assert (shown["name"], "publicKeyData" in shown) == (key["name"], False)
    query = "options.requestedPolicyVersion=3"
    assert "etag" in await broker.ok("POST", f"{account['name']}:getIamPolicy?{query}")


async def test_a_key_is_given_once_and_only_its_public_half_is_kept(broker: Guarded) -> None:
    account = await broker.account()
    key = await broker.key(account)
    assert key["client_email"] == account["email"]
    assert key["token_uri"] == "http://127.0.0.1:8085/token"
    [listed] = (await broker.ok("GET", f"{account['name']}/keys"))["keys"]
    assert listed["name"] == key["name"]
    assert "privateKeyData" not in listed
    assert await broker.ok("GET", key["name"]) == listed
    async with broker.database.connection() as connection:
        rows = await (await connection.execute("SELECT * FROM service_account_keys")).fetchall()
    assert "PRIVATE" not in str(rows)
    assert await _status(broker, broker.bearer(key)) == 200


async def test_a_deleted_key_proves_nothing_from_then_on_nor_does_what_it_was_exchanged_for(
    broker: Guarded,
) -> None:
    key, other = [await broker.key(await broker.account(name)) for name in ("first-one", "second-one")]
    status, answer = await _exchange(broker, key)
    assert (status, answer["token_type"], answer["expires_in"]) == (200, "Bearer", 3599)
    exchanged = {"Authorization": f"Bearer {answer['access_token']}"}
    signed = broker.bearer(key)
    assert [await _status(broker, shown) for shown in (signed, exchanged)] == [200, 200]
    assert await broker.ok("DELETE", key["name"]) == {}
    assert [await _status(broker, shown) for shown in (signed, exchanged)] == [401, 401]
    assert (await _exchange(broker, key))[1]["error"] == "invalid_grant"
    assert await _status(broker, broker.bearer(other)) == 200


async def test_a_disabled_account_is_nobody_until_it_is_enabled(broker: Guarded) -> None:
    account = await broker.account()
    shown = broker.bearer(await broker.key(account))
    for verb, status in (("disable", 401), ("enable", 200), ("disable", 401)):
        assert await broker.ok("POST", f"{account['name']}:{verb}", {}) == {}
        assert await _status(broker, shown) == status
    assert (await broker.ok("GET", account["name"]))["disabled"] is True


async def test_an_account_that_is_made_anew_does_not_have_the_keys_of_the_one_before(broker: Guarded) -> None:
    account = await broker.account()
    key = await broker.key(account)
    shown = {"Authorization": f"Bearer {(await _exchange(broker, key))[1]['access_token']}"}
    assert await _status(broker, shown) == 200
    await broker.ok("DELETE", account["name"])
    again = await broker.account()
    assert again["email"] == account["email"]
    assert again["uniqueId"] != account["uniqueId"]
    assert [await _status(broker, one) for one in (shown, broker.bearer(key))] == [401, 401]


async def test_an_account_that_is_made_anew_does_not_have_the_roles_of_the_one_before(broker: Guarded) -> None:
    topic = f"{broker.project}/topics/topic"
    await broker.ok("PUT", topic, {})
    account, other = await broker.account(), await broker.account("other-account")
    ours, others = (f"serviceAccount:{one['email']}" for one in (account, other))
    both = {"bindings": [{"role": "roles/pubsub.publisher", "members": [ours, others]}]}
    before = await broker.ok("POST", f"{topic}:setIamPolicy", {"policy": both})
    await broker.ok("DELETE", account["name"])
    left = await broker.ok("GET", f"{topic}:getIamPolicy")
    assert left["bindings"] == [{"role": "roles/pubsub.publisher", "members": [others]}]
    stale = await broker.call("POST", f"{topic}:setIamPolicy", {"policy": before})  # who has read it before
    assert (stale.status_code, stale.json()["error"]["status"]) == (409, "ABORTED")
    again = await broker.key(await broker.account(role=""))
    for path in ("topics", "topics/topic"):
        response = await broker.call("GET", f"{broker.project}/{path}", headers=broker.bearer(again))
        assert response.status_code == 403
    assert await _status(broker, broker.bearer(await broker.key(other))) == 200


async def test_a_change_of_another_process_is_heard_of(broker: Guarded) -> None:
    shown = broker.bearer(await broker.key(await broker.account()))
    assert await _status(broker, shown) == 200
    async with broker.database.transaction() as connection:
        await service_accounts.set_disabled(
            connection, email="some-account@guarded.iam.broker.internal", disabled=True
        )
        await raise_access_version(
            connection, schema=broker.database.schema, projects=["projects/guarded"], credentials=True
        )

    async def refused() -> bool:
        return await _status(broker, shown) == 401

    await eventually(refused)
