"""A preview needs what the action needs, and names only what its caller may see."""

from tests.fixtures.access import guarded


async def test_who_may_only_read_sees_no_preview_and_nobody_the_names_of_what_they_may_not_get(
    database_url: str,
) -> None:
    async with guarded(database_url, allow_reset=True) as broker:
        project = broker.project
        topic, sub = f"{project}/topics/orders", f"{project}/subscriptions/worker"
        await broker.ok("PUT", topic, {})
        await broker.ok("PUT", sub, {"topic": topic})
        ids = (await broker.ok("POST", f"{topic}:publish", {"messages": [{"data": "eA=="}]}))["messageIds"]
        await broker.ok("PUT", f"{project}/snapshots/snapshot", {"subscription": sub})
        schedule = {"topic": topic, "interval": "3600s", "message": {"data": "eA=="}}
        await broker.ok("PUT", f"{project}/schedules/beat", schedule)
        viewer = {"headers": broker.bearer(await broker.key(await broker.account("viewer", role="roles/viewer")))}
        editor = {"headers": broker.bearer(await broker.key(await broker.account("some-editor")))}
        asked = {"validateOnly": True}
        calls = {
            f"{topic}:purge": {},
            f"{topic}:retract": {"messageIds": ids},
            f"{sub}:purge": {},
            f"{sub}:detach": {},
            f"{sub}:seek": {"time": "2100-01-01T00:00:00Z"},
            f"{sub}:discard": {"messageIds": ids},
            f"{project}:reset": {},
        }
        for path, body in calls.items():
            assert (await broker.call("POST", path, body | asked, **viewer)).status_code == 403, path
            assert (await broker.call("POST", path, body | asked, headers={})).status_code == 401, path
            assert (await broker.ok("POST", path, body | asked, **editor))["validateOnly"], path
        for path in (topic, sub, f"{project}/snapshots/snapshot", f"{project}/schedules/beat"):
            assert (await broker.call("DELETE", path, params={"validateOnly": "true"}, **viewer)).status_code == 403
            preview = await broker.ok("DELETE", path, params={"validateOnly": "true"}, **editor)
            assert preview["validateOnly"], path
        seen = await broker.ok("DELETE", topic, params={"validateOnly": "true"}, **editor)
        assert [each["kind"] for each in seen["referredToBy"]] == ["SCHEDULE", "SNAPSHOT", "SUBSCRIPTION"]
        account = await broker.account("topic-owner", role="")
        owner = {"headers": broker.bearer(await broker.key(account))}
        binding = {"role": "roles/pubsub.editor", "members": [f"serviceAccount:{account['email']}"]}
        await broker.ok("POST", f"{topic}:setIamPolicy", {"policy": {"bindings": [binding]}})
        hidden = await broker.ok("DELETE", topic, params={"validateOnly": "true"}, **owner)
        assert (hidden["referredToBy"], hidden["referenceCount"]) == ([], 3)


async def test_what_refers_to_accounts_and_roles_is_named(database_url: str) -> None:
    async with guarded(database_url) as broker:
        project = broker.project
        account = await broker.account("pusher")
        key = await broker.key(account)
        path = f"{project}/serviceAccounts/{account['email']}"
        await broker.ok("PUT", f"{project}/topics/orders", {})
        token = {"serviceAccountEmail": account["email"]}
        push = {"pushEndpoint": "http://127.0.0.1:9/nobody", "oidcToken": token}
        sub = f"{project}/subscriptions/worker"
        await broker.ok("PUT", sub, {"topic": f"{project}/topics/orders", "pushConfig": push})
        asked = {"params": {"validateOnly": "true"}}
        preview = await broker.ok("DELETE", path, **asked)
        assert {each["kind"] for each in preview["referredToBy"]} == {"KEY", "POLICY", "PUSH_TOKEN"}
        assert preview["count"] == preview["referenceCount"] == 3
        key_path = f"{path}/keys/{key['private_key_id']}"
        assert (await broker.ok("DELETE", key_path, **asked))["count"] == 0
        role = {"roleId": "auditor", "role": {"title": "Auditor", "includedPermissions": ["pubsub.topics.get"]}}
        name = (await broker.ok("POST", f"{project}/roles", role))["name"]
        api_key = await broker.ok("POST", f"{project}/apiKeys", {"roles": [name]})
        preview = await broker.ok("DELETE", name, **asked)
        assert preview["referredToBy"] == [{"name": api_key["name"], "kind": "API_KEY"}]
        assert (await broker.ok("DELETE", api_key["name"], **asked))["unit"] == "reference"
        for each in (path, name):
            refused = await broker.call("DELETE", each, params={"expectedCount": 9})
            assert refused.status_code == 409, each
        assert await broker.ok("DELETE", path, params={"expectedCount": 3}) == {}
        assert (await broker.ok("DELETE", name, params={"expectedCount": 1}))["deleted"]
