"""The commands of docs/runbooks.md, run one after the other on a project that has what they name."""

import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.cli.client.terminal import Terminal
from tests.fixtures.broker import NO_TLS, repository

PAGE = (repository() / "docs" / "runbooks.md").read_text("utf-8")
# These start, migrate or read a database, or run on another machine; tests/cli runs them.
_OF_A_DATABASE = re.compile(r"broker (serve|migrate|backup|sql|database|doctor)\b")
_FIRST_TIME = "2026-11-22T12:00:00Z"  # as the page writes it: some time before now


def _commands() -> list[str]:
    lines = [
        line.strip() for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
    ]
    commands = [re.sub(r" {2,}#.*", "", line) for line in lines if line.startswith("broker ")]
    return [command for command in commands if not _OF_A_DATABASE.match(command)]


@pytest.fixture
def broken_shop(terminal: Terminal, broker_url: str, project: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A project with the resources of the page.  Returns the id of a message that no subscription has got yet."""
    monkeypatch.setenv("BROKER_URL", broker_url)
    monkeypatch.setenv("BROKER_PROJECT", project.removeprefix("projects/"))
    for line in (
        "topic create greetings --retention 1d",
        "topic create dead-orders",
        "sub create dead-orders --topic dead-orders",
        "sub create worker --topic greetings --dead-letter-topic dead-orders",
        "sub create old --topic greetings",
        "sub create other --topic greetings",
        "sub create hook --topic greetings --push-endpoint http://127.0.0.1:9/",
        "snapshot create old --sub old",
    ):
        assert terminal.pipe(f"broker {line}").code == 0
    published = terminal.pipe("broker publish greetings hello")
    return published.text.strip()


def test_the_commands_of_the_runbooks_succeed(terminal: Terminal, broken_shop: str) -> None:
    commands = _commands()
    assert len(commands) >= 35
    terminal.variables["ID"] = broken_shop
    an_hour_ago = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for command in commands:
        if command.startswith("broker sub create worker"):  # of the runbook about one that has vanished
            assert terminal.pipe("broker sub delete worker --yes").code == 0
        done = terminal.pipe(command.replace(_FIRST_TIME, an_hour_ago))
        assert done.code == 0, f"{command}\n{done.text}"


def test_no_runbook_calls_the_api_without_a_command() -> None:
    assert re.findall(r"curl .*", PAGE) == ["curl $BROKER_URL/.well-known/jwks.json`."]  # which no command reads
    assert "/v1/" not in PAGE


def test_the_first_command_says_of_a_message_what_became_of_it(
    terminal: Terminal, broken_shop: str, broker_url: str, project: str
) -> None:
    """As the table below it: never delivered, filtered, acknowledged, and not there at all."""
    [first] = re.findall(r"## Messages do not arrive\n.*?```sh\n(.*?)\n```", PAGE, re.DOTALL)
    assert first == "broker message show $ID"
    with httpx.Client(base_url=f"{broker_url}/v1/{project}", verify=NO_TLS) as client:
        topic = f"{project}/topics/greetings"
        client.put("/subscriptions/german", json={"topic": topic, "filter": 'attributes.lang = "de"'})
    terminal.variables["ID"] = terminal.pipe("broker publish greetings hello").text.strip()
    assert terminal.pipe("broker pull other --max 10 --ack").code == 0
    shown = terminal.pipe(first)
    assert shown.code == 0
    for name, state in (("worker", "WAITING"), ("german", "FILTERED"), ("other", "ACKNOWLEDGED")):
        assert re.search(rf"\b{name} +{state}\b", shown.text), shown.text
    terminal.variables["ID"] = "4000000000000000001"  # of a shard that no test has
    assert terminal.pipe(first).code == 3
