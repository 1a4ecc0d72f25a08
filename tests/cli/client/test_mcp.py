"""Commands as tools of the Model Context Protocol, called by its own client."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import click
import jsonschema_rs
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from broker.cli.commands.mcp_tools import ACTING, READING, Tool, tools_of
from broker.cli.main import CLIENTS, command_line
from broker.client.stop import Misuse
from tests.fixtures.broker import Rest

# Commands that are no tools: they hold messages for the caller, have no end, or use files of the machine.
NO_TOOLS = {
    *("pull", "sub ack", "sub nack", "sub reject", "sub extend", "tail", "top", "events tail", "op wait", "bench"),
    *("reset", "apply", "export", "topic export", "topic import", "message data", "doctor", "docs", "help", "mcp"),
    *("console", "share create"),  # they make a secret
    *("schema create", "schema validate", "schema check", "schema commit", "transform validate", "transform test"),
    *("context list", "context set", "context use", "context show", "context delete", "completion"),
}


@asynccontextmanager
async def client(rest: Rest, *options: str) -> AsyncIterator[ClientSession]:
    url = str(rest.client.base_url).rstrip("/")
    arguments = ["-m", "broker", "mcp", f"--url={url}", f"--project={rest.project.split('/')[1]}", *options]
    async with (
        stdio_client(StdioServerParameters(command=sys.executable, args=arguments)) as (reading, writing),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        yield session


async def call(session: ClientSession, name: str, **given: Any) -> tuple[str, bool]:
    """Return the text of an answer, and whether the tool failed."""
    answer = await session.call_tool(name, given)
    [content] = answer.content
    return content.text, bool(answer.is_error)  # type: ignore[union-attr]


async def test_without_write_the_tools_only_read(rest: Rest) -> None:
    await rest.create_topic("orders")
    await rest.create_subscription("billing", topic="orders")
    await rest.publish("a", "b", topic="orders")
    async with client(rest) as session:
        listed = (await session.list_tools()).tools
        assert {tool.name.replace("_", " ") for tool in listed} == {name.replace("-", " ") for name in READING}
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in listed)
        text, failed = await call(session, "sub_show", subscription="billing")
        assert not failed
        assert json.loads(text)["topic"] == rest.topic("orders")
        text, failed = await call(session, "peek", subscription="billing")
        assert (failed, text.count('"messageId"')) == (False, 2)
        assert (await call(session, "purge", subscription="billing", act=True))[1]
    assert len(await rest.pull("billing")) == 2


async def test_with_write_a_tool_says_first_what_it_would_do(rest: Rest) -> None:
    await rest.create_topic("orders")
    await rest.create_subscription("billing", topic="orders")
    await rest.publish("a", "b", topic="orders")
    async with client(rest, "--write") as session:
        text, failed = await call(session, "purge", subscription="billing")
        assert (failed, json.loads(text)["count"]) == (False, 2)
        text, failed = await call(session, "purge", subscription="billing", act=True)
        assert failed
        assert "expected_count" in text
        text, failed = await call(session, "purge", subscription="billing", act=True, expected_count=1)
        assert failed
        assert len(await rest.pull("billing", 1)) == 1
        text, failed = await call(session, "purge", subscription="billing", act=True, expected_count=2)
        assert not failed, text
        text, failed = await call(session, "publish", topic="orders", texts=["--file=/etc/passwd", "-"])
        assert not failed, text
    received = await rest.drain("billing")
    assert len(received) == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "sub_show needs 'subscription'"),
        ({"subscription": "none"}, "NOT_FOUND: Subscription does not exist (resource=none)"),
        ({"subscription": "a", "url": "http://elsewhere.example"}, "sub_show has no argument 'url'"),
        ({"subscription": "--url=http://elsewhere.example"}, "--url=http://elsewhere.example"),
    ],
)
async def test_what_a_tool_cannot_do_is_an_error_that_says_why(
    rest: Rest, given: dict[str, Any], said: str
) -> None:
    async with client(rest) as session:
        text, failed = await call(session, "sub_show", **given)
    assert failed
    assert said in text


def test_each_command_is_a_tool_or_is_meant_not_to_be_one() -> None:
    root = command_line()
    commands = {" ".join(words) for words in _leaves(root) if words[0] in CLIENTS}
    assert commands == READING | ACTING | NO_TOOLS
    for tool in tools_of(root, writes=True).values():
        assert jsonschema_rs.meta.is_valid(tool.schema())
        assert not {"url", "credentials", "file", "yes", "dry_run"} & tool.schema()["properties"].keys(), tool.name
        assert tool.description


def test_what_a_tool_is_given_is_never_an_option() -> None:
    [show] = [tool for tool in tools_of(command_line(), writes=False).values() if tool.name == "topic_show"]
    assert show.command_line({"topic": "--help"}) == ["topic", "show", "--json", "--", "--help"]
    with pytest.raises(Misuse, match="has no argument 'act'"):
        show.command_line({"topic": "a", "act": True})


def _leaves(command: click.Command, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [words]
    context = click.Context(command)
    below = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [leaf for name, each in below if each is not None for leaf in _leaves(each, (*words, name))]


def test_tools_are_named_by_their_commands() -> None:
    assert Tool(("topic", "test-filter"), click.Command("test-filter")).name == "topic_test_filter"
