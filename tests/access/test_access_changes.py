"""A change of access ends what is known in its own projects, and callers who were let in are checked again."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from psycopg import sql

from broker.access.principals.policy import ABOVE_PROJECTS
from broker.access.versions import version_rows as store
from broker.access.versions.access_changes import AccessChanges, Versions
from broker.access.versions.version import AccessVersion
from broker.access.versions.version_rows import raise_access_version, read_changes
from broker.db.driver.database import Database
from broker.features.operations.operation import Operation
from broker.features.operations.rows import insert_operation
from broker.model.operation_verb import Verb
from tests.fixtures.access import Guarded
from tests.fixtures.broker import PATIENCE_SECONDS, Json, eventually
from tests.limits.raw import calling, request

OTHER = "projects/other"
_FIRST = Versions(1, 1)  # of a newly migrated database


async def _raise(database: Database, *projects: str, credentials: bool = False) -> None:
    async with database.transaction() as connection:
        await raise_access_version(connection, schema=database.schema, projects=projects, credentials=credentials)


async def _changes(database: Database, *, since: Versions = _FIRST) -> AccessChanges:
    async with database.connection() as connection:
        return await read_changes(connection, since=since)


async def test_changes_are_known_by_their_projects(database: Database) -> None:
    assert await _changes(database) == AccessChanges(Versions(1, 1), frozenset(), frozenset())
    await _raise(database, "projects/a", "projects/b")
    await _raise(database, "projects/c", credentials=True)
    expected = AccessChanges(
        Versions(3, 3), frozenset({"projects/a", "projects/b", "projects/c"}), frozenset({"projects/c"})
    )
    assert await _changes(database) == expected
    assert (await _changes(database, since=Versions(2, 1))).projects == {"projects/c"}


async def test_a_change_above_projects_is_a_change_of_all(database: Database) -> None:
    await _raise(database, ABOVE_PROJECTS)
    await _raise(database, "projects/a")
    assert await _changes(database) == AccessChanges(Versions(3, 1), None, frozenset())
    await _raise(database, ABOVE_PROJECTS, credentials=True)
    assert await _changes(database) == AccessChanges(Versions(4, 4), None, None)


async def test_a_version_that_does_not_say_what_it_changed_may_have_changed_anything(database: Database) -> None:
    await _raise(database, "projects/a")
    async with database.connection() as connection:
        await connection.execute("UPDATE access_version SET version = version + 1, credentials = version + 1")
    await _raise(database, "projects/a")
    assert await _changes(database) == AccessChanges(Versions(4, 3), None, None)
    assert (await _changes(database, since=Versions(3, 3))).projects == {"projects/a"}


async def test_a_process_that_is_far_behind_takes_it_that_everything_has_changed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "KEPT_VERSIONS", 2)
    monkeypatch.setattr(store, "_PRUNE_EVERY", 1)
    for _ in range(5):
        await _raise(database, "projects/a")
    assert (await _changes(database, since=Versions(4, 1))).projects == {"projects/a"}
    assert (await _changes(database, since=Versions(3, 1))).projects is None


async def test_what_was_read_holds_until_its_own_project_changes(database: Database) -> None:
    version = AccessVersion(database)
    await version.refresh()
    here, there, above = (version.validity(name) for name in ("projects/a", "projects/b", ABOVE_PROJECTS))
    await _raise(database, "projects/a")
    await version.refresh()
    assert (here.holds, there.holds, above.holds) == (False, True, True)
    assert version.validity("projects/a").holds
    assert version.validity("projects/b") is there
    await _raise(database, ABOVE_PROJECTS)
    await version.refresh()
    assert (there.holds, above.holds) == (False, False)
    await version._hang_up()


async def test_names_that_nothing_was_read_of_take_no_memory(database: Database) -> None:
    version = AccessVersion(database)
    kept = version.validity("projects/p")
    for number in range(1000):
        version.validity(f"projects/p{number}")
    assert list(version._validities.values()) == [kept]


# --- through a broker ----------------------------------------------------------------------------------------


async def _editor_of(broker: Guarded, project: str, account_id: str) -> tuple[Json, Json]:
    """The account, and the headers of one of its keys."""
    tenant = replace(broker, project=project)
    account = await tenant.account(account_id, role="roles/owner")
    return account, {"headers": broker.bearer(await tenant.key(account))}


@asynccontextmanager
async def _locked(database: Database, *tables: str) -> AsyncIterator[None]:
    """Nobody reads them meanwhile."""
    async with database.connection() as connection, connection.transaction():
        for table in tables:
            await connection.execute(
                sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(sql.Identifier(table))
            )
        yield


async def _change_own_access(broker: Guarded, account: Json, shown: Json) -> None:
    """All that a tenant may change of its own project."""
    project = broker.project
    key = await broker.ok("POST", f"{project}/apiKeys", {"roles": ["roles/viewer"]}, **shown)
    await broker.ok("DELETE", key["name"], **shown)
    role = {"roleId": "reader", "role": {"includedPermissions": ["pubsub.topics.get"]}}
    await broker.ok("POST", f"{project}/roles", role, **shown)
    await broker.ok("DELETE", f"{project}/roles/reader", **shown)
    policy = await broker.ok("POST", f"{project}:getIamPolicy", {}, **shown)
    await broker.ok("POST", f"{project}:setIamPolicy", {"policy": policy}, **shown)
    await broker.ok("POST", f"{account['name']}/keys", {}, **shown)


async def test_what_a_tenant_changes_of_its_own_access_leaves_what_is_known_of_others(broker: Guarded) -> None:
    tenant, its_key = await _editor_of(broker, broker.project, "greedy-tenant")
    _, good = await _editor_of(broker, OTHER, "good-tenant")
    await broker.ok("PUT", f"{OTHER}/topics/orders", {}, **good)
    await broker.ok("GET", f"{OTHER}/topics/orders", **good)
    await _change_own_access(broker, tenant, its_key)
    async with _locked(broker.database, "policies", "service_accounts", "service_account_keys", "api_keys"):
        async with asyncio.timeout(PATIENCE_SECONDS):  # it is refused if it reads anything anew
            await broker.ok("GET", f"{OTHER}/topics/orders", **good)


async def test_what_is_open_is_not_checked_again_for_another_projects_changes(broker: Guarded) -> None:
    tenant, its_key = await _editor_of(broker, broker.project, "greedy-tenant")
    _, good = await _editor_of(broker, OTHER, "good-tenant")
    await broker.ok("PUT", f"{OTHER}/topics/orders", {}, **good)
    await broker.ok("PUT", f"{OTHER}/subscriptions/work", {"topic": f"{OTHER}/topics/orders"}, **good)
    pull = asyncio.create_task(broker.call("POST", f"{OTHER}/subscriptions/work:pull", {"maxMessages": 1}, **good))
    gate = broker.broker.gate
    assert gate is not None
    await eventually(lambda: len(gate._open) == 1)
    gate._checking = None
    await _change_own_access(broker, tenant, its_key)
    assert gate._checking is None
    await broker.ok("POST", f"{OTHER}/topics/orders:publish", {"messages": [{"data": "aGk="}]}, **good)
    assert (await pull).status_code == 200


async def test_an_open_call_ends_with_a_role_in_another_project_than_its_callers(broker: Guarded) -> None:
    account = await broker.account(role="")
    key = {"headers": broker.bearer(await broker.key(account))}
    await broker.ok("PUT", f"{OTHER}/topics/orders", {})
    await broker.ok("PUT", f"{OTHER}/subscriptions/work", {"topic": f"{OTHER}/topics/orders"})
    binding = {"role": "roles/pubsub.subscriber", "members": [f"serviceAccount:{account['email']}"]}
    path = f"{OTHER}/subscriptions/work:setIamPolicy"
    await broker.ok("POST", path, {"policy": {"bindings": [binding]}})
    pull = asyncio.create_task(broker.call("POST", f"{OTHER}/subscriptions/work:pull", {"maxMessages": 1}, **key))
    gate = broker.broker.gate
    assert gate is not None
    await eventually(lambda: len(gate._open) == 1)
    await broker.ok("POST", path, {"policy": {"bindings": []}})
    assert (await pull).status_code == 403


async def test_an_account_that_is_deleted_loses_its_roles_in_other_projects(broker: Guarded) -> None:
    account = await broker.account("some-account", role="")
    name = f"{OTHER}/topics/orders"
    await broker.ok("PUT", name, {})
    binding = {"role": "roles/viewer", "members": [f"serviceAccount:{account['email']}"]}
    await broker.ok("POST", f"{name}:setIamPolicy", {"policy": {"bindings": [binding]}})
    key = {"headers": broker.bearer(await broker.key(account))}
    await broker.ok("GET", name, **key)
    await broker.ok("DELETE", account["name"])
    assert (await broker.call("GET", name, **key)).status_code == 401
    again = {"headers": broker.bearer(await broker.key(await broker.account("some-account", role="")))}
    assert (await broker.call("GET", name, **again)).status_code == 403


async def test_all_users_are_let_in_and_shut_out_at_once_while_other_projects_change(broker: Guarded) -> None:
    name = f"{OTHER}/topics/orders"
    await broker.ok("PUT", name, {})
    policy = {"bindings": [{"role": "roles/viewer", "members": ["allUsers"]}]}
    for bindings, status in ((policy, 200), ({"bindings": []}, 401), (policy, 200)):
        await broker.ok("POST", f"{name}:setIamPolicy", {"policy": bindings})
        for _ in range(2):
            await broker.ok("POST", f"{broker.project}:setIamPolicy", {"policy": {"bindings": []}})
            assert (await broker.call("GET", name, headers={})).status_code == status


# --- checked again before they act ---------------------------------------------------------------------------


@pytest.mark.parametrize("taken", ["role", "key"])
async def test_a_publish_whose_body_ends_after_the_role_or_the_key_was_taken_away_is_not_stored(
    broker: Guarded, taken: str
) -> None:
    account = await broker.account()
    key = await broker.key(account)
    topic, sub = f"{broker.project}/topics/orders", f"{broker.project}/subscriptions/work"
    await broker.ok("PUT", topic, {})
    await broker.ok("PUT", sub, {"topic": topic})
    shown = broker.bearer(key)
    body = json.dumps({"messages": [{"data": "aGk="}]}).encode()
    head = request("POST", f"/v1/{topic}:publish", f"Authorization: {shown['Authorization']}", body=body)
    gate = broker.broker.gate
    assert gate is not None
    async with calling(str(broker.client.base_url)) as caller:
        caller.send(head[: -len(body)] + body[:5])
        await eventually(lambda: any(one.member.startswith("serviceAccount:some-") for one, *_ in gate._passed))
        if taken == "key":
            await broker.ok("DELETE", key["name"])
        else:
            await broker.ok("POST", f"{broker.project}:setIamPolicy", {"policy": {"bindings": []}})
        caller.send(body[5:])
        assert (await caller.answer()).status == (401 if taken == "key" else 403)
    await broker.ok("POST", f"{topic}:publish", {"messages": [{"data": "Yg=="}]})
    received = await broker.ok("POST", f"{sub}:pull", {"maxMessages": 10})
    assert [each["message"]["data"] for each in received["receivedMessages"]] == ["Yg=="]


async def test_who_waits_for_an_operation_is_answered_once_the_role_is_gone(broker: Guarded) -> None:
    now = broker.now
    operation = Operation(
        name=f"{broker.project}/operations/1",
        project=broker.project,
        verb=Verb.REDRIVE,
        target=f"{broker.project}/subscriptions/work",
        request={},
        total=1,
        created_at=now,
        updated_at=now,
        next_step_at=now + timedelta(days=1),
    )
    async with broker.database.transaction() as connection:
        await insert_operation(connection, operation=operation)
    account = await broker.account(role="roles/viewer")
    key = {"headers": broker.bearer(await broker.key(account))}
    wait = asyncio.create_task(broker.call("POST", f"{operation.name}:wait", {"timeout": "60s"}, **key))
    gate = broker.broker.gate
    assert gate is not None
    await eventually(lambda: any(call.required for call in gate._open))
    await broker.ok("POST", f"{broker.project}:setIamPolicy", {"policy": {"bindings": []}})
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await wait).status_code == 403
