"""Changes of access: a tenant that changes a role, a policy and API keys of its own project, over 4 connections."""

import asyncio
import json
from collections.abc import Callable

from benchmarks.attacks.caller import Caller

_CALLERS = 4
_FULL_FORCE_SECONDS = 3.0
_PROJECT = "projects/greedy"
_PERMISSIONS = ("pubsub.topics.publish", "pubsub.topics.get")


async def changes_of_access(host: str, port: int, ready: Callable[[], None]) -> None:
    """Each caller has a topic and a role of its own, so that their changes do not conflict."""
    callers = [Caller(host, port) for _ in range(_CALLERS)]
    for number, caller in enumerate(callers):
        await caller.call("PUT", f"{_PROJECT}/topics/access-{number}")
        role = {"roleId": f"role{number}", "role": {"includedPermissions": [_PERMISSIONS[0]]}}
        await caller.call("POST", f"{_PROJECT}/roles", role)
    tasks = [asyncio.create_task(_change_for_ever(caller, number)) for number, caller in enumerate(callers)]
    await asyncio.sleep(_FULL_FORCE_SECONDS)
    ready()
    await asyncio.gather(*tasks)


async def _change_for_ever(caller: Caller, number: int) -> None:
    topic, role = f"{_PROJECT}/topics/access-{number}", f"{_PROJECT}/roles/role{number}"
    turn = 0
    while True:
        turn += 1
        permissions = {"includedPermissions": list(_PERMISSIONS[: 1 + turn % 2])}
        member = f"serviceAccount:someone-{turn % 2}@greedy.iam.gserviceaccount.com"
        policy = {"bindings": [{"role": role, "members": [member]}]}
        _check(await caller.call("PATCH", role, permissions))
        _check(await caller.call("POST", f"{topic}:setIamPolicy", {"policy": policy}))
        key = _check(
            await caller.call(
                "POST", f"{_PROJECT}/apiKeys", {"displayName": "greedy", "roles": ["roles/pubsub.viewer"]}
            )
        )
        _check(await caller.call("DELETE", str(key["name"])))


def _check(answer: bytes) -> dict[str, object]:
    """The answer; an attack that is refused for its form would measure nothing."""
    fields: dict[str, object] = json.loads(answer or b"{}")
    error = fields.get("error")
    if isinstance(error, dict) and error.get("code") not in (409, 429, 503):
        raise RuntimeError(f"a change of access was refused: {error}")
    return fields
