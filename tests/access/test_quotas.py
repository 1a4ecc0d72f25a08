"""Quotas of principals (E4), and who may set quotas."""

from tests.fixtures.access import Guarded
from tests.fixtures.broker import Json, message

_MANY = {"messages": [message("x")] * 500}  # at one a second paid for after minutes


async def test_a_principal_at_its_limit_leaves_the_others_of_its_project_alone(broker: Guarded) -> None:
    topic = f"{broker.project}/topics/orders"
    await broker.ok("PUT", topic, {})
    await broker.ok("PATCH", f"{broker.project}/quotas", {"principalLimits": {"publishMessages": 1}})
    noisy, quiet = [await broker.account(name) for name in ("noisy-one", "quiet-one")]
    as_noisy, as_quiet = [broker.bearer(await broker.key(account)) for account in (noisy, quiet)]
    await broker.ok("POST", f"{topic}:publish", _MANY, headers=as_noisy)
    refused = await broker.call("POST", f"{topic}:publish", _MANY, headers=as_noisy)
    assert refused.status_code == 429
    error = refused.json()["error"]
    assert noisy["email"] in error["message"]
    assert error["details"][1]["violations"][0]["subject"] == f"serviceAccount:{noisy['email']}"
    await broker.ok("POST", f"{topic}:publish", _MANY, headers=as_quiet)
    await broker.broker.core.admission.balance()
    reported = await broker.ok("GET", f"{broker.project}/quotas")
    used = {one["principal"]: one for one in reported["principalQuotas"]}
    assert used[f"serviceAccount:{noisy['email']}"]["limit"] == 1
    assert used[f"serviceAccount:{noisy['email']}"]["usage"] > 0


async def test_the_owner_of_a_project_sees_its_quotas_and_cannot_lift_them(broker: Guarded) -> None:
    owner = broker.bearer(await broker.key(await broker.account("some-owner", role="roles/owner")))
    viewer = broker.bearer(await broker.key(await broker.account("some-viewer", role="roles/pubsub.viewer")))
    publisher = broker.bearer(await broker.key(await broker.account("publisher", role="roles/pubsub.publisher")))
    path, body = f"{broker.project}/quotas", {"limits": {"topics": 5}}
    set_here: Json = await broker.ok("PATCH", path, body)
    assert (await broker.call("PATCH", path, {"limits": {"topics": -1}}, headers=owner)).status_code == 403
    assert (await broker.ok("GET", path, headers=owner))["limits"] == set_here["limits"] == {"topics": 5}
    for reader, seen in ((viewer, 200), (publisher, 403)):
        assert (await broker.call("GET", path, headers=reader)).status_code == seen
        assert (await broker.call("PATCH", path, body, headers=reader)).status_code == 403
