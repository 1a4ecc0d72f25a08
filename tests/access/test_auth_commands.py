"""`broker auth …` beside a broker that runs."""

import asyncio
import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest

from broker.cli.main import main
from broker.client.api import Api
from broker.features.iam.commands import policy
from tests.fixtures.access import Guarded
from tests.fixtures.broker import Json

pytestmark = [pytest.mark.slow, pytest.mark.ci]

PROJECT = "projects/guarded"
EMAIL = "billing@guarded.iam.broker.internal"
MEMBER = f"serviceAccount:{EMAIL}"


@dataclass
class Cli:
    """The command line, as the holder of a key file types it."""

    broker: Guarded
    key_file: Path
    capsys: pytest.CaptureFixture[str]

    async def run(self, *words: str, code: int = 0, key_file: Path | None = None) -> str:
        """What it prints; of a command that fails the line that says why."""
        options = ("--url", str(self.broker.client.base_url), "--credentials", str(key_file or self.key_file))
        found = await asyncio.to_thread(main, ["auth", *words, *options])
        printed = self.capsys.readouterr()
        assert found == code, printed
        if code:
            [line] = printed.err.splitlines()
            return line
        assert printed.err == ""
        return printed.out

    async def json(self, *words: str, **options: Any) -> Any:
        return json.loads(await self.run(*words, "--json", **options))


@pytest.fixture
async def cli(broker: Guarded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    file = tmp_path / "admin-key.json"
    file.write_text(json.dumps(broker.admin))
    return Cli(broker, file, capsys)


async def test_an_account_is_made_listed_disabled_enabled_and_deleted(cli: Cli) -> None:
    made = await cli.json("accounts", "create", "billing", "--project", "guarded", "--display-name", "Billing")
    assert (made["email"], made["displayName"]) == (EMAIL, "Billing")
    await cli.run("accounts", "create", "shipping", "--project", PROJECT)
    table = (await cli.run("accounts", "list", "--project", "guarded")).splitlines()
    assert [line.split() for line in table] == [
        ["EMAIL", "NAME", "STATE"],
        [EMAIL, "Billing", "enabled"],
        ["shipping@guarded.iam.broker.internal", "enabled"],
    ]
    assert await cli.run("accounts", "disable", EMAIL) == f"Disabled {EMAIL}.\n"
    assert (await cli.json("accounts", "list", "--project", "guarded"))[0]["disabled"] is True
    assert await cli.run("accounts", "enable", EMAIL) == f"Enabled {EMAIL}.\n"
    assert await cli.run("accounts", "delete", EMAIL) == f"Deleted {EMAIL}.\n"
    assert f"there is no service account {EMAIL}" in await cli.run("accounts", "delete", EMAIL, code=3)
    assert len(await cli.json("accounts", "list", "--project", "guarded")) == 1


async def test_a_key_file_lets_its_holder_in_until_it_is_deleted(cli: Cli, tmp_path: Path) -> None:
    await cli.run("accounts", "create", "billing", "--project", "guarded")
    file = tmp_path / "billing.json"
    said = await cli.run("keys", "create", EMAIL, "--output", str(file))
    [key] = await cli.json("keys", "list", EMAIL)
    key_id = key["name"].rpartition("/")[2]
    assert [line.split() for line in said.splitlines()] == [
        ["key", key_id],
        ["account", EMAIL],
        ["file", str(file)],
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "exists" in await cli.run("keys", "create", EMAIL, "--output", str(file), code=2)
    refused = await cli.run("policy", "get", PROJECT, key_file=file, code=5)
    assert refused.startswith("broker: PERMISSION_DENIED: ")
    await cli.run("policy", "add", PROJECT, "--member", MEMBER, "--role", "roles/owner")
    assert "roles/owner" in await cli.run("policy", "get", PROJECT, key_file=file)
    assert await cli.run("keys", "delete", EMAIL, key_id) == f"Deleted the key {key_id}.\n"
    assert "UNAUTHENTICATED" in await cli.run("policy", "get", PROJECT, key_file=file, code=5)


async def test_a_key_that_cannot_be_written_is_none(cli: Cli, tmp_path: Path) -> None:
    await cli.run("accounts", "create", "billing", "--project", "guarded")
    nowhere = tmp_path / "none" / "key.json"
    assert "cannot be written" in await cli.run("keys", "create", EMAIL, "--output", str(nowhere), code=1)
    assert await cli.json("keys", "list", EMAIL) == []


async def test_a_token_is_what_curl_needs(cli: Cli) -> None:
    token = (await cli.run("token")).strip()
    assert jwt.get_unverified_header(token)["alg"] == "HS256"
    headers = {"Authorization": f"Bearer {token}"}
    assert (await cli.broker.call("GET", f"{PROJECT}/topics", headers=headers)).status_code == 200
    assert (await cli.json("token"))["expires_in"] <= 3600


async def test_an_api_key_is_shown_once(cli: Cli) -> None:
    words = ("--project", "guarded", "--display-name", "sensors", "--role", "roles/viewer")
    made = await cli.json("api-keys", "create", *words)
    headers = {"X-Goog-Api-Key": made["keyString"]}
    assert (await cli.broker.call("GET", f"{PROJECT}/topics", headers=headers)).status_code == 200
    listed = await cli.run("api-keys", "list", "--project", "guarded")
    assert made["name"].rpartition("/")[2] in listed
    assert made["keyString"] not in listed
    await cli.run("api-keys", "delete", made["name"])
    assert await cli.json("api-keys", "list", "--project", "guarded") == []
    assert (await cli.broker.call("GET", f"{PROJECT}/topics", headers=headers)).status_code == 401


@pytest.mark.parametrize("resource", [PROJECT, f"{PROJECT}/topics/orders", f"{PROJECT}/serviceAccounts/{EMAIL}"])
async def test_roles_are_given_and_taken(cli: Cli, resource: str) -> None:
    await cli.run("accounts", "create", "billing", "--project", "guarded")
    await cli.broker.ok("PUT", f"{PROJECT}/topics/orders", {})
    words = (resource, "--member", MEMBER, "--role", "roles/viewer")
    for _ in range(2):  # again it changes nothing
        policy = await cli.json("policy", "add", *words)
        assert policy["bindings"] == [{"role": "roles/viewer", "members": [MEMBER]}]
    table = (await cli.run("policy", "get", resource)).splitlines()
    assert [line.split() for line in table] == [["ROLE", "MEMBER"], ["roles/viewer", MEMBER]]
    assert "bindings" not in await cli.json("policy", "remove", *words)
    assert "does not have roles/viewer" in await cli.run("policy", "remove", *words, code=1)


async def test_who_was_overtaken_by_another_change_tries_again_and_keeps_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reads = policy._read, []

    def read_and_be_overtaken(api: Api, resource: str) -> Json:
        found = read(api, resource)
        if not reads:
            other = {"role": "roles/editor", "members": ["user:other@example.com"]}
            api.call("POST", f"{resource}:setIamPolicy", {"policy": found | {"bindings": [other]}})
        reads.append(found)
        return found

    monkeypatch.setattr(policy, "_read", read_and_be_overtaken)
    await cli.run("accounts", "create", "billing", "--project", "guarded")
    given = await cli.json("policy", "add", PROJECT, "--member", MEMBER, "--role", "roles/viewer")
    assert [binding["role"] for binding in given["bindings"]] == ["roles/editor", "roles/viewer"]
    assert len(reads) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["accounts", "create", "x"],
            "no project: give --project, set BROKER_PROJECT, or keep one: `broker context set`",
        ),
        (["accounts", "lst"], "there is no command 'auth accounts lst'; did you mean list?"),
        (["accounts", "list", "--projct", "p"], "`broker auth accounts list` has no option --projct; did you mean"),
        (["keys", "list", "a", "b"], "`broker auth keys list` does not know what 'b' is for"),
        (
            ["token", "--credentials", "/no/such.json"],
            "--credentials /no/such.json: there is no such file; `broker",
        ),
        (
            ["token", "--credentials", __file__],
            f"--credentials {__file__} is neither the key file of a service account",
        ),
        (["token"], "a token is made from a key: give --credentials FILE, or set GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    assert main(["auth", *words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"broker: {said}")


def test_a_shell_completes_what_is_typed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("_BROKER_COMPLETE", "bash_complete"),
        ("COMP_WORDS", "broker auth a"),
        ("COMP_CWORD", "2"),
    ):
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split() == ["plain,accounts", "plain,api-keys"]


def test_a_broker_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["auth", "accounts", "list", "--project", "p", "--url", "http://127.0.0.1:9"]) == 4
    assert "http://127.0.0.1:9 cannot be reached: " in capsys.readouterr().err
