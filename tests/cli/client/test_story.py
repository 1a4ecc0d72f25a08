"""Every command for a server, on a terminal of 80 columns and as JSON, beside what it is known to print.

`UPDATE_GOLDEN=1 pytest tests/cli/client/test_story.py` writes down what they print now: look at the difference.
"""

import json
import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import httpx
import pytest

from broker.cli.main import command_line
from broker.client.calling import ClientCommand
from tests.cli.client.methods import Calls, listed, methods
from tests.cli.client.story import AUTH_STORY, FILES, STORY, TAKEN_UP, lines
from tests.cli.client.terminal import IN_A_SHELL, Terminal, steady
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json
from tests.fixtures.push_sink import PushSink

FOR_PROGRAMS = (
    "--json",
    "broker completion",
    "broker docs",
    "--schema",
    "broker auth token",
    "broker console",
    "broker share create",
)  # what they print is no concern of a terminal's
# What these print depends on the machine, or on when the broker has written down counts.
_VARYING = ("broker docs", "broker fleet", "broker push attempts")
GOLDEN = Path(__file__).parent / "golden"

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def own_broker_url(start_broker: StartBroker, tmp_path: Path) -> str:
    """Of a broker that nobody has used: tables are as wide as the ids in them.  It samples lags once, before."""
    arguments = ("--port", "0", "--allow-reset", "--lag-interval-seconds", "300")
    url = start_broker("--data-dir", str(tmp_path / "data"), *arguments).url
    _wait_until(lambda: "sampleTime" in _get(f"{url}/v1/projects/none/lag"))
    return url


@pytest.fixture
def at_work(
    terminal: Terminal, own_broker_url: str, project: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Terminal:
    """A terminal with a broker, in a project of its own."""
    monkeypatch.setenv("BROKER_URL", own_broker_url)
    monkeypatch.setenv("BROKER_PROJECT", project.removeprefix("projects/"))
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return terminal


def _as_json(line: str) -> str:
    return line if "--json" in line.rpartition("|")[2] or "$(" in line or ">" in line else f"{line} --json"


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", ["terminal", "json"])
def test_what_each_command_prints(
    form: str, at_work: Terminal, own_broker_url: str, project: str, push_sink: PushSink, calls: Calls
) -> None:
    reported: list[str] = []
    known = _by_line((GOLDEN / f"{form}.txt").read_text(encoding="utf-8"))
    at_work.variables["SINK"] = f"{push_sink.url}/status/200/{project[-10:]}"
    for line, _ in lines(STORY):
        at_work.variables |= _variables(line, f"{own_broker_url}/v1/{project}")
        topic = next((topic for begin, topic in TAKEN_UP.items() if line.startswith(begin)), None)
        publishing = _publishing(f"{own_broker_url}/v1/{project}/topics/{topic}") if topic else _nothing()
        with publishing, calls.of(_command_of(line)):
            done = at_work.type(line) if form == "terminal" else at_work.pipe(_as_json(line))
        assert done.code == 0, f"{line}: {done.text}"
        _check(form, done.text, line)
        text = "…\n" if "--schema" in line or line.startswith(_VARYING) else steady(done.text)
        typed = f"$ {line if form == 'terminal' else _as_json(line)}\n"
        before = sum(each.startswith(typed) for each in reported)
        if _is_of_old_messages(line, text) and before < len(known[typed]):
            text = known[typed][before].removesuffix("\n")
        reported.append(f"{typed}{text}")
    _compare(GOLDEN / f"{form}.txt", "\n".join(reported))
    _check_methods(calls, STORY)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", ["terminal", "json"])
def test_what_the_commands_about_callers_print(
    form: str,
    terminal: Terminal,
    start_broker: StartBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    calls: Calls,
) -> None:
    data = tmp_path / "data"
    url = start_broker("--data-dir", str(data), "--port", "0", "--auth", "required").url
    (tmp_path / "admin.json").write_bytes((data / "admin-key.json").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert terminal.pipe(f"broker context set demo --url {url} --project demo --credentials admin.json").code == 0
    email = "billing@demo.iam.broker.internal"
    terminal.variables |= {"EMAIL": email, "MEMBER": f"serviceAccount:{email}"}
    reported = []
    for line, _ in lines(AUTH_STORY):
        for name, kept in (("API_KEY", "api-keys list"), ("KEY", f"keys list {email}"), ("LINK", "")):
            if f"${name}" in line:
                listing = f"broker auth {kept}" if kept else "broker share list hook"
                found = json.loads(terminal.pipe(f"{listing} --json").text)
                terminal.variables[name] = found[0]["name"].rpartition("/")[2]
        if line.startswith("broker audit"):
            _wait_until(lambda line=line: json.loads(terminal.pipe(f"{line} --json").text))
        with calls.of(_command_of(line)):
            done = terminal.type(line) if form == "terminal" else terminal.pipe(_as_json(line))
        assert done.code == 0, f"{line}: {done.text}"
        _check(form, done.text, line)
        reported.append(f"$ {line if form == 'terminal' else _as_json(line)}\n{steady(done.text)}")
    _compare(GOLDEN / f"auth-{form}.txt", "\n".join(reported).replace(str(tmp_path), "/home/me"))
    _check_methods(calls, AUTH_STORY)


def _check_methods(calls: Calls, story: str) -> None:
    """The page says of each command of the story what it calls."""
    in_process = [line for line, _ in lines(story) if not any(sign in line for sign in IN_A_SHELL)]
    commands = {_command_of(line) for line in in_process}
    said = {method: command for method, command in listed().items() if command in commands}
    assert {
        method: command for method, command in said.items() if command not in calls.by_command.get(method, ())
    } == {}


def _command_of(line: str) -> str:
    """The path of the last command of a line: "broker sub ack"."""
    words = line.rpartition("| ")[2].removeprefix('eval "$(').split()
    paths = [path for path, _ in _CLIENTS]
    return max((path for path in paths if words[: len(path.split())] == path.split()), key=len)


def _check(form: str, text: str, line: str) -> None:
    if form == "terminal":
        fits = max(map(len, text.splitlines()), default=0) <= 80
        assert fits or any(word in line for word in FOR_PROGRAMS), line
    else:
        _check_json(text, line)


def _check_json(text: str, line: str) -> None:
    """One document, or a document in each line."""
    if "$(" in line or ">" in line:
        return
    try:
        json.loads(text)
    except ValueError:
        assert all(json.loads(one) is not None for one in text.splitlines()), line


def _is_of_old_messages(line: str, text: str) -> bool:
    """A machine that is slow comes here when messages are older than ten seconds, and nobody has pulled them: that
    is no matter of how commands print, so what is known of the command stands in its place.
    """
    return line.split()[1] in ("lag", "top", "doctor") and "_CONSUMERS" in text


def _by_line(golden: str) -> Mapping[str, Sequence[str]]:
    """What each command printed, each time that it was typed."""
    known: dict[str, list[str]] = defaultdict(list)
    for block in re.split(r"(?m)^(?=\$ )", golden)[1:]:
        typed, _, text = block.partition("\n")
        known[f"{typed}\n"].append(text)
    return known


def _compare(file: Path, reported: str) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(reported, encoding="utf-8")
    assert reported == file.read_text(encoding="utf-8")


def _variables(line: str, url: str) -> dict[str, str]:
    """Ids that this line needs; what the broker does in its own time is waited for."""
    found = {"SCHEMA": f"{url.partition('/v1/')[2]}/schemas/order"}
    if "$ID" in line:
        found["ID"] = _get(f"{url}/topics/orders/messages?order=oldest")["messages"][0]["messageId"]
    if line.startswith("broker dlq summary"):
        _wait_until(lambda: len(_get(f"{url}/subscriptions/fragile/deadLetters").get("deadLetters", [])) == 3)
    if "$LETTER" in line:
        found["LETTER"] = _get(f"{url}/subscriptions/fragile/deadLetters")["deadLetters"][-1]["sourceMessageId"]
    if "$ENCODED" in line:
        found["ENCODED"] = _get(f"{url}/topics/coded/messages")["messages"][0]["messageId"]
    if "$WAITING" in line:
        found["WAITING"] = _get(f"{url}/topics/reminders/scheduled")["scheduledMessages"][0]["messageId"]
    if line.startswith("broker sub consumers"):
        path = f"{url}/subscriptions/billing/consumers"
        _wait_until(lambda: any(one["outstandingMessages"] for one in _get(path)["consumers"]))
    if "$ACK_ID" in line:
        found["ACK_ID"] = _pulled_ack_id(url, line.split()[3])
    if "$REVISION" in line:
        revisions = _get(f"{url}/schemas/order:listRevisions")["schemas"]
        found["REVISION"] = revisions[-1]["revisionId"]
    if "$OP" in line:
        found["OP"] = _get(f"{url}/operations")["operations"][0]["name"].rpartition("/")[2]
    return found


def _wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _pulled_ack_id(url: str, subscription: str) -> str:
    """Of a message that is published so that the subscription has one; it is pulled until one comes."""
    topic = _get(f"{url}/subscriptions/{subscription}")["topic"].rpartition("/")[2]
    body: Json = {"messages": [{"data": "b3JkZXI="}]}
    httpx.post(f"{url}/topics/{topic}:publish", json=body, verify=NO_TLS).raise_for_status()
    answer = httpx.post(
        f"{url}/subscriptions/{subscription}:pull", json={"maxMessages": 1}, timeout=60, verify=NO_TLS
    ).raise_for_status()
    ack_id: str = answer.json()["receivedMessages"][0]["ackId"]
    return ack_id


def _get(url: str) -> Json:
    answer: Json = httpx.get(url, verify=NO_TLS).json()
    return answer


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _publishing(topic_url: str) -> Iterator[None]:
    """Again and again, within the block."""
    ended = threading.Event()

    def publish() -> None:
        while not ended.wait(0.1):
            body = {"messages": [{"data": "dGljaw=="}]}
            httpx.post(f"{topic_url}:publish", json=body, verify=NO_TLS)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _commands(group: click.Group, path: str = "broker") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


_CLIENTS = [(path, command) for path, command in _commands(command_line()) if isinstance(command, ClientCommand)]


@pytest.mark.parametrize(("path", "command"), _CLIENTS, ids=[path for path, _ in _CLIENTS])
def test_each_command_has_examples_that_the_story_runs(path: str, command: ClientCommand) -> None:
    examples = {line for line, is_example in lines() if is_example}
    assert command.examples
    assert set(command.examples) <= examples
    assert all(f"{path} " in f"{example} " for example in command.examples)
    help_ = command.get_help(click.Context(command, info_name=path, terminal_width=80, max_content_width=80))
    assert max(map(len, help_.splitlines())) <= 80


def test_each_method_of_the_api_is_called_by_a_command() -> None:
    assert methods() - listed().keys() == set()
    assert listed().keys() - methods() == set()
    assert set(listed().values()) <= {path for path, _ in _CLIENTS}


def test_what_the_story_shows_as_an_example_is_one() -> None:
    examples = {example for _, command in _CLIENTS for example in command.examples}
    assert [line for line, is_example in lines() if is_example and line not in examples] == []


def test_the_help_fits_a_screen_and_names_every_command(terminal: Terminal) -> None:
    shown = terminal.type("broker --help")
    assert len(shown.text.splitlines()) <= 24
    assert max(map(len, shown.text.splitlines())) <= 80
    words = shown.text.replace(",", " ").split()
    assert set(command_line().list_commands(click.Context(command_line()))) <= set(words)
