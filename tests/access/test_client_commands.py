"""Commands for a server that asks who calls: by a key file, by an API key, and by what a context keeps of these."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.cli.client.terminal import Terminal, Typed, terminal
from tests.fixtures.access import Guarded

__all__ = ["terminal"]

pytestmark = [pytest.mark.slow, pytest.mark.ci]


async def test_commands_show_a_key_file_or_an_api_key_and_may_do_what_its_roles_allow(
    broker: Guarded, terminal: Terminal, tmp_path: Path
) -> None:
    url = str(broker.client.base_url)

    async def typed(line: str) -> Typed:
        return await asyncio.to_thread(terminal.pipe, f"broker {line}")

    admin = tmp_path / "admin.json"
    admin.write_text(json.dumps(broker.admin))
    viewer = tmp_path / "viewer.json"
    viewer.write_text(json.dumps(await broker.key(await broker.account(role="roles/pubsub.viewer"))))
    body = {"displayName": "sensors", "roles": ["roles/pubsub.publisher"]}
    api_key = (await broker.ok("POST", f"{broker.project}/apiKeys", body))["keyString"]

    nobody = await typed(f"topic list --url {url} --project guarded")
    assert (nobody.code, "; give --credentials FILE or BROKER_CREDENTIALS" in nobody.text) == (5, True)
    await typed(f"context set admin --url {url} --project guarded --credentials {admin}")
    assert (await typed("topic create orders")).code == 0  # by the context, which is in use
    of_viewer = f"--url {url} --credentials {viewer} --project guarded"
    assert "orders" in (await typed(f"topic list {of_viewer}")).text
    refused = await typed(f"topic create more {of_viewer}")
    assert (refused.code, "`broker auth policy add` gives roles" in refused.text) == (5, True)
    of_sensors = f"--url {url} --credentials {api_key} --project guarded"
    assert (await typed(f"publish orders hello {of_sensors}")).code == 0
    denied = await typed(f"topic list {of_sensors}")
    assert (denied.code, api_key in denied.text) == (5, False)
    checks = {one["check"]: one for one in json.loads((await typed(f"doctor {of_viewer} --json")).text)}
    assert (checks["permissions"]["state"], "topics.create" in checks["permissions"]["why"]) == ("warning", True)
    declared = tmp_path / "shop.yaml"
    declared.write_text("topics: {made: {policy: {bindings: [{role: roles/viewer, members: ['user:a@b.c']}]}}}")
    assert (await typed(f"apply --file {declared}")).code == 0
    exported = tmp_path / "exported.yaml"
    exported.write_text((await typed("export")).text)
    assert "roles/pubsub.viewer" in exported.read_text()  # the project's own policy
    plan = json.loads((await typed(f"apply --file {exported} --json")).text)
    assert {one["action"] for one in plan} == {"none"}
