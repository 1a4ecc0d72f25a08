"""Whoever deletes something at a terminal is told what is lost, and asked; elsewhere nobody is."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.client.answering import AnsweringServer, error_answer
from tests.cli.client.terminal import Terminal, Typed
from tests.fixtures.broker import NO_TLS, Json, message


class _Keyboard(io.StringIO):
    """Standard input of a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def ask(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Typed]:
    """Types a command, and the answer to what it asks."""

    def type_(line: str, answer: str) -> Typed:
        monkeypatch.setattr("sys.stdin", _Keyboard(answer))
        return terminal.pipe(line)

    return type_


class Shop:
    def __init__(self, client: httpx.Client, where: str) -> None:
        self.client = client
        self.where = where

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        answer = self.client.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    def exists(self, path: str) -> bool:
        return self.client.get(path).status_code == 200


@pytest.fixture
def shop(broker_url: str, project: str) -> Iterator[Shop]:
    """A topic with two subscriptions, and what else hangs on it."""
    with httpx.Client(base_url=f"{broker_url}/v1/{project}/", verify=NO_TLS) as client:
        shop = Shop(client, f"--url {broker_url} --project {project.removeprefix('projects/')}")
        topic = f"{project}/topics/orders"
        for name in ("topics/orders", "topics/other"):
            shop.call("PUT", name, {})
        shop.call("PATCH", "topics/orders", {"topic": {"extensions": {"delay": True}}, "updateMask": "extensions"})
        for name in ("billing", "audit"):
            shop.call("PUT", f"subscriptions/{name}", {"topic": topic})
        policy = {"deadLetterTopic": topic, "maxDeliveryAttempts": 5}
        shop.call("PUT", "subscriptions/fragile", {"topic": f"{project}/topics/other", "deadLetterPolicy": policy})
        shop.call("PUT", "snapshots/before", {"subscription": f"{project}/subscriptions/billing"})
        every = {"topic": topic, "interval": "86400s", "message": {"data": "YQ=="}}
        shop.call("PUT", "schedules/nightly", every)
        later = message("later", {"broker-delay": "3600s"})
        shop.call("POST", "topics/orders:publish", {"messages": [message("a"), message("b"), later]})
        yield shop


def test_deleting_a_subscription_asks_with_its_backlog(shop: Shop, ask: Callable[[str, str], Typed]) -> None:
    line = f"broker sub delete billing {shop.where}"
    refused = ask(line, "n\n")
    assert (refused.code, shop.exists("subscriptions/billing")) == (130, True)
    assert "  2 undelivered messages would be lost\n" in refused.text
    assert "Delete the subscription projects/" in refused.text
    assert ask(line, "y\n").code == 0
    assert not shop.exists("subscriptions/billing")


def test_deleting_a_subscription_without_a_backlog_asks_nothing(
    shop: Shop, ask: Callable[[str, str], Typed]
) -> None:
    done = ask(f"broker sub delete fragile {shop.where}", "")
    assert (done.code, done.text.count("\n")) == (0, 1)


def test_deleting_a_topic_asks_with_all_that_hangs_on_it(shop: Shop, ask: Callable[[str, str], Typed]) -> None:
    line = f"broker topic delete orders {shop.where}"
    refused = ask(line, "n\n")
    assert (refused.code, shop.exists("topics/orders")) == (130, True)
    for lost in (
        "2 subscriptions would get nothing more: audit, billing",
        "1 snapshot would belong to no topic: before",
        "1 dead-letter policy publishes to it: fragile",
        "1 schedule publishes to it: nightly",
        "1 scheduled message would be lost, the first due at 2",
    ):
        assert f"  {lost}" in refused.text
    assert ask(f"{line} --yes", "").code == 0
    assert not shop.exists("topics/orders")


@pytest.mark.parametrize(
    "line", ["sub delete billing", "topic delete orders", "snapshot delete before", "schedule delete nightly"]
)
def test_what_is_no_terminal_is_not_asked(line: str, shop: Shop, terminal: Terminal) -> None:
    done = terminal.pipe(f"broker {line} {shop.where}")
    assert (done.code, "[y/N]" in done.text) == (0, False)


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("snapshot delete before", "Nobody can seek to it any more."),
        ("schedule delete nightly", "and its history? [y/N]"),
        ("scheduled cancel orders 7", "Cancel the scheduled message 7 of orders, for good?"),
        ("sub detach billing", "  2 undelivered messages would be lost"),
        ("purge billing", "  2 undelivered messages of billing would be dropped"),
        ("purge billing --before 1h", "  up to 2 undelivered messages of billing would be dropped"),
        ("purge --topic orders", "2 undelivered messages of audit, 2 undelivered messages of billing would be"),
        ("seek billing --time now", "  2 undelivered messages would be skipped"),
        ("reset", "  2 topics, 3 subscriptions, 1 snapshot, 0 schemas, 1 schedule would be deleted"),
        ("dlq discard fragile --id 7", "Discard 1 message of fragile, for good?"),
        ("message retract orders 7", "Retract 1 message of orders, for good?"),
        ("auth accounts delete a@b.iam.broker.internal", "its keys and its roles, for good?"),
        ("auth keys delete a@b.iam.broker.internal 7", "Delete the key 7 of a@b"),
        ("auth api-keys delete 7", "Delete the API key projects/"),
    ],
)
def test_every_command_that_destroys_something_asks_and_stops_if_the_answer_is_no(
    line: str, asked: str, shop: Shop, ask: Callable[[str, str], Typed]
) -> None:
    refused = ask(f"broker {line} {shop.where}", "n\n")
    assert refused.code == 130, refused.text
    assert asked in refused.text
    assert "[y/N]" in refused.text
    position = shop.call("GET", "subscriptions/billing/snapshot")
    assert position["undeliveredMessages"] == 2


def test_a_seek_that_skips_nothing_or_can_be_undone_does_not_ask(
    shop: Shop, ask: Callable[[str, str], Typed]
) -> None:
    for given in ("--time 1h", "--time now --undoable"):
        done = ask(f"broker seek billing {given} {shop.where}", "")
        assert (done.code, "[y/N]" in done.text) == (0, False), done.text


def test_a_prune_says_what_each_deletion_loses(
    shop: Shop, ask: Callable[[str, str], Typed], terminal: Terminal, tmp_path: Path
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("topics: {parcels: {}}\nsubscriptions: {couriers: {topic: parcels}}\n")
    assert terminal.pipe(f"broker apply --file {file} {shop.where}").code == 0
    shop.call("POST", "topics/parcels:publish", {"messages": [message("a")]})
    file.write_text("topics: {}\n")
    refused = ask(f"broker apply --file {file} --prune {shop.where}", "n\n")
    assert refused.code == 130, refused.text
    assert "  subscription couriers: 1 undelivered message would be lost" in refused.text
    assert "  topic parcels: 1 subscription would get nothing more: couriers" in refused.text
    assert shop.exists("topics/parcels")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (error_answer(503, "UNAVAILABLE"), "UNAVAILABLE: It is UNAVAILABLE"),
        (error_answer(403, "PERMISSION_DENIED"), "PERMISSION_DENIED: It is PERMISSION_DENIED"),
        ((404, b"Not Found"), "does not know GET"),
    ],
)
def test_what_could_not_be_determined_is_asked_about_too(
    answer: tuple[int, bytes], why: str, server: AnsweringServer, ask: Callable[[str, str], Typed]
) -> None:
    server.answers = {
        "/subscriptions/billing": (200, b"{}"),
        "/snapshot": answer,
        "/deadLetters": (404, b"Not Found"),
    }
    refused = ask(f"broker sub delete billing --url {server.url} --project p", "n\n")
    assert refused.code == 130
    assert "  its backlog could not be determined: " in refused.text
    assert why in refused.text
    assert "its dead letters" not in refused.text  # this server keeps none


def test_what_is_not_there_is_refused_without_a_question(shop: Shop, ask: Callable[[str, str], Typed]) -> None:
    for line in ("sub delete none", "topic delete none"):
        done = ask(f"broker {line} {shop.where}", "")
        assert (done.code, "NOT_FOUND" in done.text, done.text.count("\n")) == (3, True, 1), done.text
