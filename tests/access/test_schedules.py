"""Who may have messages published again and again (J2)."""

from tests.fixtures.access import guarded
from tests.fixtures.broker import message


async def test_a_schedule_needs_what_a_publish_needs_and_looking_less(database_url: str) -> None:
    async with guarded(database_url) as broker:
        project = broker.project
        await broker.ok("PUT", f"{project}/topics/jobs", {})
        body = {"topic": f"{project}/topics/jobs", "message": message("a"), "schedule": "0 3 * * *"}
        name = f"{project}/schedules/nightly"
        await broker.ok("PUT", name, body)
        for role, may_look in (("roles/pubsub.viewer", True), ("roles/pubsub.publisher", False)):
            account = await broker.account(f"{role.rpartition('.')[2]}-account", role=role)
            theirs = {"headers": broker.bearer(await broker.key(account))}
            for method, path in (("GET", name), ("GET", f"{name}:next"), ("GET", f"{name}/ticks")):
                assert (await broker.call(method, path, **theirs)).status_code == (200 if may_look else 403), role
            for method, path in (
                ("PUT", name),
                ("POST", f"{name}:pause"),
                ("POST", f"{name}:resume"),
                ("POST", f"{name}:run"),
                ("DELETE", name),
            ):
                given = body if method == "PUT" else {}
                assert (await broker.call(method, path, given, **theirs)).status_code == 403, (role, path)
        # Who may make schedules and not publish makes none.
        permissions = ["pubsub.schedules.create", "pubsub.schedules.get"]
        role = {"roleId": "scheduler", "role": {"includedPermissions": permissions}}
        made = await broker.ok("POST", f"{project}/roles", role)
        account = await broker.account("scheduler-account", role=made["name"])
        theirs = {"headers": broker.bearer(await broker.key(account))}
        assert (await broker.call("GET", name, **theirs)).status_code == 200
        assert (await broker.call("PUT", name, body, **theirs)).status_code == 403
