"""Which server a command calls and as whom; what it says when it cannot; how it ends."""

import json
import os
import stat
from pathlib import Path

import pytest

from broker.client.hints import hint
from tests.cli.client.answering import AnsweringServer, error_answer
from tests.cli.client.terminal import Terminal

API_KEY = "a-key-that-nobody-may-see-0123456789"


def test_options_go_before_variables_and_these_before_the_context(
    terminal: Terminal, server: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.pipe(f"broker context set one --url {server.url} --project first --credentials {API_KEY}")
    assert terminal.pipe("broker topic list").code == 0
    monkeypatch.setenv("BROKER_PROJECT", "second")
    terminal.pipe("broker topic list")
    terminal.pipe("broker topic list --project third")
    assert [path for path, _ in server.got] == [
        f"/v1/projects/{name}/topics" for name in ("first", "second", "third")
    ]
    assert all(headers["X-Goog-Api-Key"] == API_KEY for _, headers in server.got)


def test_what_a_context_shows_is_for_its_own_server_alone(terminal: Terminal, server: AnsweringServer) -> None:
    terminal.pipe(f"broker context set one --url http://127.0.0.1:1 --project p --credentials {API_KEY}")
    assert terminal.pipe(f"broker topic list --url {server.url}").code == 0
    [(_, headers)] = server.got
    assert "X-Goog-Api-Key" not in headers
    refused = terminal.pipe(f"broker context set one --url {server.url}")
    assert (refused.code, "are for another server" in refused.text) == (2, True)


def test_the_file_of_contexts_is_its_owners_and_no_command_shows_a_key(terminal: Terminal, tmp_path: Path) -> None:
    terminal.pipe(f"broker context set one --url http://127.0.0.1:1 --project p --credentials {API_KEY}")
    [file] = (tmp_path / "config").rglob("contexts.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    for command in ("list", "show", "show one", "list --json", "use one"):
        shown = terminal.pipe(f"broker context {command}")
        assert (shown.code, API_KEY in shown.text) == (0, False)
    file.write_text("{")
    assert "is not as `broker context set` writes it" in terminal.pipe("broker context list").text


def test_credentials_are_a_key_file_or_a_key_and_errors_do_not_show_them(
    terminal: Terminal, tmp_path: Path
) -> None:
    file = tmp_path / "key.json"
    file.write_text('{"client_email": "x"}')
    for given, said in (
        (str(file), "is not the key file of a service account"),
        ("/no/such.json", "/no/such.json: there is no such file; `broker auth keys create`"),
        ("short secret", "it is no file, and no API key; "),
        (str(tmp_path), "there is no such file"),
    ):
        done = terminal.pipe(f"broker topic list --project p --credentials {given!r}")
        assert done.code == 2
        assert said in done.text
        assert "short secret" not in done.text


@pytest.mark.parametrize(
    ("call", "why", "said"),
    [
        ("/topics/orders:publish", "Topic not found", "; `broker topic create orders` makes it"),
        ("/topics/orders:replace", "", ""),
        ("/topics/orders:purge", "", "; `broker topic list` shows what there is"),
        ("/topics/orders/scheduled/7", "", "; `broker scheduled list orders` shows what waits"),
        ("/subscriptions/worker:pull", "", "; `broker sub list` shows what there is"),
        ("/operations/1", "There is no such operation", "; `broker op list` shows what there is"),
        ("/schedules/nightly", "There is no such schedule", "; `broker schedule list` shows what there is"),
    ],
)
def test_what_is_not_there_is_looked_for_where_it_may_be(call: str, why: str, said: str) -> None:
    assert hint("NOT_FOUND", f"/v1/projects/p{call}", why, asked=False) == said


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("sub create worker --topic none", 3, "; `broker topic list` shows what there is"),
        ("sub create worker --topic orders --dead-letter-topic none", 3, "; `broker topic list` shows what there"),
        ("snapshot create morning --sub none", 3, "; `broker sub list` shows what there is"),
        ("dlq redrive billing --target none", 3, "; `broker topic list` shows what there is"),
        ("dlq redrive none", 3, "; `broker sub list` shows what there is"),
        ("dlq show billing 1000000000000001", 3, "billing has no dead letter 1000000000000001; "),
        ("dlq list billing", 0, "It has no dead letters."),
        ("dlq list billing --reason typo", 0, "No dead letter matches; "),
        ("dlq discard billing --reason typo --yes", 0, "No dead letter matches; "),
        ("dlq discard billing --reason typo --id 1", 2, "by --reason, --filter, --since, --until; not both"),
        ("tail --sub billing", 1, "; `broker sub update billing --set extensions.journal.mode=ALL` does"),
        ("push recover billing --since 1h", 1, "; that is `broker dlq redrive`, `broker push resend` and "),
        ("op show none", 3, "; `broker op list` shows what there is"),
    ],
)
def test_what_a_broker_refuses_is_told_with_the_command_that_helps(
    line: str, code: int, said: str, terminal: Terminal, broker_url: str, project: str
) -> None:
    where = f"--project {project.removeprefix('projects/')} --url {broker_url}"
    terminal.pipe(f"broker topic create orders {where}")
    terminal.pipe(f"broker sub create billing --topic orders {where}")
    done = terminal.pipe(f"broker {line} {where}")
    assert (done.code, said in done.text) == (code, True), done.text
    assert done.text.count("\n") == 1


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (error_answer(404, "NOT_FOUND"), 3, "NOT_FOUND: It is NOT_FOUND; `broker topic list` shows what there is"),
        (error_answer(400, "INVALID_ARGUMENT"), 1, "INVALID_ARGUMENT: It is INVALID_ARGUMENT"),
        (
            error_answer(401, "UNAUTHENTICATED"),
            5,
            "; give --credentials FILE or BROKER_CREDENTIALS: the key file of ",
        ),
        (
            error_answer(403, "PERMISSION_DENIED"),
            5,
            "; `broker auth policy add` gives roles, to whoever may do that",
        ),
        (error_answer(503, "UNAVAILABLE"), 4, "UNAVAILABLE: It is UNAVAILABLE; try again"),
        (error_answer(429, "RESOURCE_EXHAUSTED"), 4, "RESOURCE_EXHAUSTED: It is RESOURCE_EXHAUSTED\n"),
        ((404, b"Not Found\n"), 1, "does not know GET /v1/projects/p/topics/orders: it is not this broker"),
        ((502, b"<html>"), 4, "answers 502, itself or by a proxy before it"),
        ((403, b"<html>"), 5, "answers 403, itself or by a proxy before it"),
        ((200, b"<html>"), 1, "does not answer as a server of this API does"),
    ],
    ids=str,
)
def test_a_refusal_says_what_to_do_and_ends_with_its_code(
    answer: tuple[int, bytes], code: int, said: str, terminal: Terminal, server: AnsweringServer
) -> None:
    server.answer = answer
    done = terminal.pipe(f"broker topic show orders --url {server.url} --project p")
    assert done.code == code
    assert said in done.text
    [line] = done.text.splitlines()
    assert line.startswith("broker: ")


@pytest.mark.parametrize(
    ("status", "command"),
    [
        ("UNAUTHENTICATED", "broker auth keys create ACCOUNT, then --credentials FILE"),
        ("PERMISSION_DENIED", "broker auth policy add RESOURCE --role ROLE --member MEMBER"),
    ],
)
def test_the_doctor_says_once_what_is_missing(
    status: str, command: str, terminal: Terminal, server: AnsweringServer
) -> None:
    server.answer = error_answer(401 if status == "UNAUTHENTICATED" else 403, status)
    done = terminal.pipe(f"broker doctor --json --url {server.url} --project p")
    [found] = [each for each in json.loads(done.text) if each["check"] == "project"]
    assert (done.code, found["finding"], found["why"], found["command"]) == (
        1,
        "could not be checked",
        f"{status}: It is {status}",
        command,
    )


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("topic list --project p --url http://127.0.0.1:1", 4, "http://127.0.0.1:1 cannot be reached: "),
        ("topic list --project p --url localhost:8085", 2, "--url must be a URL such as http://127.0.0.1:8085, "),
        ("topic list", 2, "no project: give --project, set BROKER_PROJECT, or keep one: `broker context set`"),
        (
            "topic list --context home",
            2,
            "there is no context 'home' (there is none yet); `broker context set home`",
        ),
        ("topic show a/b --project p", 2, "'a/b' must be an id, or a name such as projects/PROJECT/topics/ID"),
        ("topic update t --project p", 2, "nothing to change: give an option such as --retention"),
        ("topic create t --project p --retention long", 2, "--retention must be a duration such as 30s, 10m, "),
        ("topic create t --project p --label x", 2, "--label must be KEY=VALUE, not 'x'"),
        ("topic create t --project p --set labels", 2, "--set must be FIELD=VALUE, such as ackDeadlineSeconds=30"),
        ("topic browse t --project p --since noon", 2, "--since must be a time such as 2026-"),
        ("topic", 2, "`broker topic` needs a command: list, create, "),
        ("topic lisst", 2, "there is no command 'topic lisst'; did you mean list? ("),
        ("publish t x --file y --project p", 2, "give texts or --file, not both"),
        ("publish t --file /no/such --project p", 2, "--file /no/such: No such file or directory"),
        ("tail --project p", 2, "give a topic, or --sub SUB"),
        ("context show", 2, "no context is in use; `broker context use NAME` changes that"),
        ("context set x", 2, "nothing to keep: give --url, --project, --credentials or --ca-file"),
        ("completion tcsh", 2, "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(line: str, code: int, said: str, terminal: Terminal) -> None:
    done = terminal.pipe(f"broker {line}")
    assert done.code == code
    assert said in done.text
    assert done.text.count("\n") == 1


def test_colours_are_for_terminals_whose_users_want_them(
    terminal: Terminal, server: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = (
        200,
        b'{"subscriptions": [{"name": "projects/p/subscriptions/s", "topic": "t", "state": "ACTIVE"}]}',
    )
    line = f"broker sub list --project p --url {server.url}"
    assert "\x1b[32mACTIVE" in terminal.type(line, colours=True).text
    assert "\x1b" not in terminal.pipe(line).text
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in terminal.type(line, colours=True).text


def test_what_strangers_have_published_does_not_command_a_terminal(
    terminal: Terminal, server: AnsweringServer
) -> None:
    data = {
        "data": "G10wO2hhAGEKYg==",
        "attributes": {"\x1b[2J": "\u202e"},
        "messageId": "1",
    }  # ESC ]0;ha NUL a LF b
    server.answer = (200, json.dumps({"messages": [data]}).encode())
    shown = terminal.type(f"broker topic browse t --project p --url {server.url}", colours=True).text
    assert "\\x1b]0;ha\\x00a\\nb" in shown
    assert "\\x1b[2J=\\u202e" in shown
    assert "\x1b]0" not in shown
    assert "\x00" not in shown


def test_who_reads_no_further_is_no_failure(terminal: Terminal, server: AnsweringServer) -> None:
    server.answer = (
        200,
        json.dumps({"topics": [{"name": f"projects/p/topics/t{i}"} for i in range(9999)]}).encode(),
    )
    line = f"broker topic list --project p --url {server.url} | head -1; exit ${{PIPESTATUS[0]}}"
    done = terminal.pipe(line)
    assert (done.code, done.text.split()) == (0, ["TOPIC"])
    assert os.environ.get("BROKER_URL") is None


def test_a_delay_is_not_sent_to_a_topic_that_would_publish_at_once(
    terminal: Terminal, server: AnsweringServer
) -> None:
    line = f"broker publish orders later --delay 1h --project p --url {server.url}"
    refused = terminal.pipe(line)
    assert (refused.code, "broker topic update orders --set extensions.delay=true" in refused.text) == (1, True)
    assert [path for path, _ in server.got] == ["/v1/projects/p/topics/orders"]


def test_a_time_to_live_is_not_sent_to_a_topic_that_would_deliver_however_late(
    terminal: Terminal, server: AnsweringServer
) -> None:
    line = f"broker publish prices 12.40 --ttl 30s --project p --url {server.url}"
    refused = terminal.pipe(line)
    assert (refused.code, "broker topic update prices --set extensions.expiry=true" in refused.text) == (1, True)
    assert [path for path, _ in server.got] == ["/v1/projects/p/topics/prices"]


@pytest.mark.parametrize(
    "given",
    [
        "broker publish alarms now --priority 0",
        'echo \'{"text": "now", "priority": 0}\' | broker publish alarms --input json',
    ],
)
def test_a_priority_is_not_sent_to_a_topic_that_would_deliver_in_its_turn(
    given: str, terminal: Terminal, server: AnsweringServer
) -> None:
    refused = terminal.pipe(f"{given} --project p --url {server.url}")
    assert (refused.code, "broker topic update alarms --priorities 3" in refused.text) == (1, True)
    assert [path for path, _ in server.got] == ["/v1/projects/p/topics/alarms"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topic create t --priorities 11", "--priorities"),
        ("topic create t --priority-age 60s", "--priority-age needs --priorities N"),
        ("topic update t --priorities 3 --priority-age soon", "--priority-age must be a duration"),
        ("topic update t --priority-weights 8,x", "--priority-weights must be numbers such as 8,3,1, not '8,x'"),
        ("topic update t --priorities 2 --priority-weights 8,3,1", "3 weights, and --priorities says 2 levels"),
        ("publish t now --priority 10", "--priority"),
    ],
)
def test_levels_that_cannot_be_are_a_mistake(line: str, said: str, terminal: Terminal) -> None:
    refused = terminal.pipe(f"broker {line} --project p --url http://127.0.0.1:1")
    assert refused.code == 2
    assert said in refused.text


def test_a_preview_of_a_message_is_not_published_in_its_place(terminal: Terminal, server: AnsweringServer) -> None:
    server.answer = (200, b'{"messageIds": ["1"]}')
    for line, code in (
        ('{"data": "YWI=", "dataSize": 5}', 2),
        ('{"message": {"data": "YWI="}, "dataSize": 5}', 2),
        ('{"data": "YWI=", "dataSize": 2}', 0),
    ):
        done = terminal.pipe(f"echo '{line}' | broker publish t --input json --project p --url {server.url}")
        assert (done.code, "only the beginning of a message of 5 bytes" in done.text) == (code, code == 2)


def test_lines_say_each_its_own_priority(terminal: Terminal, server: AnsweringServer, tmp_path: Path) -> None:
    server.answer = (200, json.dumps({"extensions": {"priorities": 3}, "messageIds": ["1", "2", "3"]}).encode())
    lines = [{"text": "a", "priority": 0}, {"text": "b", "priority": "1", "attributes": {"k": "v"}}, {"text": "c"}]
    file = tmp_path / "lines.json"
    file.write_text("\n".join(map(json.dumps, lines)))
    line = f"broker publish alarms --input json --priority 2 --file {file} --project p --url {server.url}"
    assert terminal.pipe(line).code == 0
    sent = json.loads(server.sent[-1])["messages"]
    assert [one["attributes"] for one in sent] == [
        {"broker-priority": "0"},
        {"broker-priority": "1", "k": "v"},
        {"broker-priority": "2"},
    ]
    file.write_text('{"text": "a", "priority": 10}')
    refused = terminal.pipe(line)
    assert (refused.code, f"line 1 of {file} has the priority 10" in refused.text) == (2, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--delay 1h --at 2026-12-01T08:00:00Z", "--delay"),
        ("--delay soon", "--delay must be a duration"),
        ("--at soon", "--at must be a time"),
    ],
)
def test_a_time_that_cannot_be_read_is_a_mistake(options: str, said: str, terminal: Terminal) -> None:
    for line in ("publish orders later", "scheduled move orders 1500000000000001"):
        refused = terminal.pipe(f"broker {line} {options} --project p --url http://127.0.0.1:1")
        assert refused.code == 2
        assert said in refused.text
