"""The doctor never takes an error for a verdict: what it could not check it says so of."""

import json
import socket
from collections.abc import Iterator

import psycopg
import pytest

from broker.core.lag import lag
from broker.features.inspect.fleet import database_checks
from broker.features.inspect.fleet.database_checks import inspect_database, inspect_hot_nodes, inspect_replica_of
from tests.cli.client.answering import AnsweringServer, error_answer
from tests.cli.client.terminal import Terminal

HEALTHY = {"/healthz": (200, b'{"status": "ok"}'), "/readyz": (200, b'{"status": "ok"}')}
OF_PROJECT = {
    ":testIamPermissions": "permissions",
    "/subscriptions": "project",
    "/topics": "project",
    "/schedules": "schedules",
    "/lag": "lag",
}
WELL = {
    ":testIamPermissions": (200, b'{"permissions": []}'),
    "/subscriptions": (200, b"{}"),
    "/topics": (200, b"{}"),
    "/schedules": (200, b"{}"),
    "/lag": (200, b"{}"),
}
ERRORS = {
    "503": error_answer(503, "UNAVAILABLE"),
    "403": error_answer(403, "PERMISSION_DENIED"),
    "429": error_answer(429, "RESOURCE_EXHAUSTED"),
    "500": error_answer(500, "INTERNAL"),
    "502 of a proxy": (502, b"<html>Bad Gateway</html>"),
    "404 of a proxy": (404, b"Not Found"),
    "a page of a proxy": (200, b"<html>Welcome</html>"),
    "JSON of another": (200, b'{"subscriptions": [{"of": "another"}], "topics": [{}], "permissions": 7}'),
}


def test_whatever_holds_a_subscription_has_a_next_step(terminal: Terminal, server: AnsweringServer) -> None:
    for state in set(lag.LagState) - lag.HEALTHY:
        lagging = {"subscription": "projects/p/subscriptions/hook", "deliveryState": state, "verdict": "It is so."}
        server.answers = HEALTHY | WELL | {"/lag": (200, json.dumps({"subscriptions": [lagging]}).encode())}
        done = terminal.pipe(f"broker doctor --json --url {server.url} --project p")
        [found] = [one for one in json.loads(done.text) if one["check"] == "hook"]
        assert (done.code, found["state"]) == (0, "warning")
        assert (found["finding"], found["why"]) == (state, "It is so.")
        assert found["command"] not in ("", "broker lag"), state
        assert "{" not in found["command"]


def _found(terminal: Terminal, server: AnsweringServer) -> tuple[int, dict[str, tuple[str, str]]]:
    done = terminal.pipe(f"broker doctor --json --url {server.url} --project p")
    return done.code, {one["check"]: (one["state"], one["finding"], one["why"]) for one in json.loads(done.text)}


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (call, error)
        for call in OF_PROJECT
        for error in ERRORS
        if call in ("/lag", ":testIamPermissions")
        or error != "JSON of another"  # which looks as a list of this API
    ],
)
def test_a_check_whose_call_fails_could_not_be_made_and_the_others_are(
    call: str, error: str, terminal: Terminal, server: AnsweringServer
) -> None:
    server.answers = HEALTHY | WELL | {call: ERRORS[error]}
    code, found = _found(terminal, server)
    state, finding, why = found.pop(OF_PROJECT[call])
    assert (code, state, finding) == (1, "unknown", "could not be checked")
    assert {"whoever", "may"}.isdisjoint(why.split())
    others = {name for name, (state, *_) in found.items() if state == "unknown"}
    assert others == {"lag": {"clock"}, "project": {"topics"}}.get(OF_PROJECT[call], set())


def test_during_an_outage_nothing_is_said_but_that_the_database_is_away(
    terminal: Terminal, server: AnsweringServer
) -> None:
    server.answer = error_answer(503, "UNAVAILABLE")
    server.answers = {
        "/healthz": HEALTHY["/healthz"],
        "/readyz": (503, b'{"status": "unavailable", "reason": "The database is away."}'),
    }
    code, found = _found(terminal, server)
    assert (code, found.pop("server")[0]) == (1, "ok")
    assert found.pop("ready") == ("error", "not ready", "The database is away.")
    assert {state for state, *_ in found.values()} == {"unknown"}
    assert list(found) == ["storage", "permissions", "project", "topics", "schedules", "lag", "clock"]


@pytest.mark.parametrize("status", [401, 500, 502, 503])
def test_a_server_whose_health_is_answered_by_something_else_is_not_said_to_be_another_server(
    status: int, terminal: Terminal, server: AnsweringServer
) -> None:
    server.answer = (status, b"<html>")
    _, found = _found(terminal, server)
    assert found["server"] == (
        "unknown",
        "could not be checked",
        f"{server.url}/healthz answers {status}, as no broker does",
    )
    assert found["ready"][0] == "unknown"


def test_missing_credentials_are_a_finding_and_not_known_permissions_of_another_server_too(
    terminal: Terminal, server: AnsweringServer
) -> None:
    server.answers = HEALTHY | WELL | {":testIamPermissions": error_answer(401, "UNAUTHENTICATED")}
    assert _found(terminal, server)[1]["permissions"] == (
        "error",
        "not authenticated",
        "It is UNAUTHENTICATED.",
    )
    server.answers = WELL | {"/healthz": (404, b"Not Found"), ":testIamPermissions": (404, b"Not Found")}
    code, found = _found(terminal, server)
    assert (code, found["permissions"][0]) == (0, "warning")
    assert "server" in found


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_server_that_does_not_answer_is_not_said_to_be_stopped(
    silent: str, terminal: Terminal, server: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verdict(url: str) -> str:
        [found] = json.loads(terminal.pipe(f"broker doctor --json --url {url}").text)
        assert found["state"] == "error"
        return str(found["command"])

    with monkeypatch.context() as patch:
        patch.setattr("broker.client.api._TIMEOUT_SECONDS", 0.2)
        assert verdict(silent).startswith("look at the server's log")
    for url, said in (
        (server.url.replace("http:", "https:"), "is it http:// rather than https://?"),
        ("http://127.0.0.1:1", "`broker serve` starts a broker"),
    ):
        assert verdict(url).startswith(said)


def test_a_primary_that_is_away_says_nothing_of_its_replica_or_nodes(database_url: str) -> None:
    away = "postgresql://127.0.0.1:1/x"
    assert [found[1] for found in inspect_replica_of(away, database_url)] == ["unknown"]
    assert [found[1] for found in inspect_hot_nodes(away, database_url)] == ["unknown"]
    assert [found[1] for found in inspect_replica_of(database_url, away)] == ["error"]


@pytest.mark.parametrize(
    ("table", "check"), [("outbox", "transactions"), ("processes", "fleet"), ("refused_messages", "transactions")]
)
def test_a_table_that_cannot_be_read_leaves_the_other_checks_of_the_database(
    table: str, check: str, database_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {table} RENAME TO {table}_elsewhere")
    found = {one.check: one for one in inspect_database(database_url)}
    assert found[check].state == "unknown"
    assert found[check].finding == "could not be checked"
    assert {"database", "schema", "disk"} <= found.keys()
    assert database_checks.not_checked("x", "Why.").why == "Why"


def test_top_goes_on_while_the_server_cannot_be_read_and_says_so(
    terminal: Terminal, server: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([(200, b"{}"), error_answer(503, "UNAVAILABLE"), (502, b"<html>"), (200, b"{}")])
    monkeypatch.setattr("time.sleep", lambda _: setattr(server, "answer", next(answers)))
    server.answer = next(answers)
    done = terminal.pipe(f"broker top --max 4 --url {server.url} --project p")
    assert done.code == 0
    assert done.text.count("projects/p has no subscription.") == 2
    assert done.text.count("broker: could not be read, and is tried again: UNAVAILABLE") == 2
    server.answer = error_answer(503, "UNAVAILABLE")
    assert terminal.pipe(f"broker top --max 4 --url {server.url} --project p").code == 4
