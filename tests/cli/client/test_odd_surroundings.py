"""Commands whose readers go away, that are interrupted, or whose terminal and words are not as one thinks."""

import base64
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from rich.cells import cell_len

from tests.cli.client.terminal import Terminal
from tests.fixtures.broker import NO_TLS, Json, message

BROKER = (sys.executable, "-m", "broker")


class Here:
    """A project with a topic of three messages."""

    def __init__(self, url: str, project: str, client: httpx.Client) -> None:
        self.url, self.project, self._client = url, project, client
        self.call("PUT", "topics/orders", {"messageRetentionDuration": "600s"})
        self.publish("ein", "zwei", "drei")

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        answer = self._client.request(method, f"/v1/{self.project}/{path}", json=body)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    def publish(self, *texts: str) -> None:
        self.call("POST", "topics/orders:publish", {"messages": [message(text) for text in texts]})

    def bodies(self) -> list[bytes]:
        found = self.call("GET", "topics/orders/messages?order=oldest")["messages"]
        return [base64.b64decode(each["data"]) for each in found]


@pytest.fixture
def here(broker_url: str, project: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.setenv("BROKER_URL", broker_url)
    monkeypatch.setenv("BROKER_PROJECT", project.removeprefix("projects/"))
    with httpx.Client(base_url=broker_url, verify=NO_TLS) as client:
        yield Here(broker_url, project, client)


@contextmanager
def _running(*words: str | bytes) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """On a terminal, of which this is our end."""
    ours, theirs = os.openpty()
    command = subprocess.Popen(
        [*BROKER, *words], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        yield command, ours
    finally:
        command.kill()
        command.wait()
        os.close(ours)


def _read_until(descriptor: int, wanted: bytes) -> bytes:
    read = b""
    while wanted not in read:
        read += os.read(descriptor, 65536)
    return read


def _rest_of(descriptor: int) -> bytes:
    read = b""
    try:
        while part := os.read(descriptor, 65536):
            read += part
    except OSError:  # the other end is closed
        pass
    return read


def _interrupted(command: subprocess.Popen[bytes], ours: int) -> tuple[int, str]:
    command.send_signal(signal.SIGINT)
    rest = _rest_of(ours)
    return command.wait(30), rest.decode()


def test_ctrl_c_ends_what_goes_on_without_a_word(here: Here) -> None:
    here.call("PUT", "topics/replay", {})
    slow = {"targetTopic": f"{here.project}/topics/replay", "maxMessagesPerSecond": 0.01}
    operation = here.call("POST", "topics/orders:copy", slow)["name"].rpartition("/")[2]
    here.call("PUT", "subscriptions/worker", {"topic": f"{here.project}/topics/orders"})
    for words, begun in (
        (("top", "--every", "60s"), b"worker"),
        (("op", "wait", operation), b" of 3"),
        (("topic", "copy", "orders", "replay", "--rate", "0.01"), b" of 3"),
    ):
        with _running(*words) as (command, ours):
            _read_until(ours, begun)
            code, rest = _interrupted(command, ours)
        assert (code, "Traceback" in rest, "broker:" in rest) == (130, False, False), rest
    for each in here.call("GET", "operations")["operations"]:
        assert not each["done"], "Ctrl-C ends the waiting, not the work"


def test_ctrl_c_ends_commands_about_the_database_without_a_word() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/none"
        command = subprocess.Popen([*BROKER, "migrate", "--database-url", url], stderr=subprocess.PIPE)
        connection, _ = silent.accept()
        with connection:
            command.send_signal(signal.SIGINT)
            _, reported = command.communicate(timeout=30)
    assert (command.returncode, b"Traceback" in reported) == (130, False), reported


def test_ctrl_c_ends_a_tail(here: Here) -> None:
    with _running("tail", "orders") as (command, ours):
        os.set_blocking(ours, False)
        read = b""
        while b"published" not in read:
            here.publish(f"published {'大' * 200}")
            try:
                read += os.read(ours, 65536)
            except BlockingIOError:
                continue
        os.set_blocking(ours, True)
        code, rest = _interrupted(command, ours)
    assert (code, "Traceback" in rest, "broker:" in rest) == (130, False, False), rest
    assert max(map(cell_len, read.decode(errors="ignore").splitlines())) <= 80


def test_a_tail_whose_reader_has_had_enough_ends_with_the_next_message(here: Here) -> None:
    command = subprocess.Popen([*BROKER, "tail", "orders"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert command.stdout is not None
    assert command.stderr is not None
    os.set_blocking(command.stdout.fileno(), False)
    while not command.stdout.read(1):
        here.publish("one more")
    command.stdout.close()
    while command.poll() is None:
        here.publish("one more")
    assert (command.returncode, command.stderr.read()) == (0, b"")
    command.stderr.close()


def test_what_is_no_text_is_published_as_it_was_typed_and_is_no_name(here: Here) -> None:
    done = subprocess.run([*BROKER, "publish", "orders", b"\xff\xfe"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert here.bodies()[-1] == b"\xff\xfe"
    for words in (
        (b"topic", b"show", b"\xff"),
        (b"publish", b"orders", b"x", b"--attribute", b"a=\xff"),
        (b"topic", b"list", b"--project", b"\xff"),
    ):
        done = subprocess.run([*BROKER, *words], capture_output=True, check=False)
        assert done.returncode in (1, 2)
        assert done.stderr.startswith(b"broker: ")
        assert done.stderr.count(b"\n") == 1


def test_what_a_terminal_cannot_show_is_escaped(here: Here) -> None:
    here.publish("größer → 大")
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    command = [*BROKER, "topic", "browse", "orders", "--max", "1"]
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "größer \\u2192 \\u5927".encode("latin-1") in done.stdout


def test_wide_characters_take_two_columns(here: Here, terminal: Terminal) -> None:
    here.publish("大" * 200)
    shown = terminal.type("broker topic browse orders --max 2").text
    assert max(map(cell_len, shown.splitlines())) <= 80
    assert "大" in shown


def test_a_terminal_that_is_narrow_has_whole_names_and_ids(here: Here, terminal: Terminal) -> None:
    here.call("PUT", "subscriptions/a-worker-with-a-name", {"topic": f"{here.project}/topics/orders"})
    terminal.columns = 30
    for line, wanted in (
        ("lag", {"SUBSCRIPTION", "a-worker-with-a-name"}),
        ("topic browse orders", {"ID", "DATA", "zwei"}),
    ):
        assert wanted <= set(terminal.type(f"broker {line}").text.split()), line


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(shell: str) -> None:
    for typed, wanted in (("broker topic cr", "create"), ("broker lag --ma", "--max")):
        environment = os.environ | {"_BROKER_COMPLETE": f"{shell}_complete", "COMP_WORDS": typed}
        environment["COMP_CWORD"] = typed.split()[-1] if shell == "fish" else "2"
        program = "import sys; sys.argv[0] = 'broker'; from broker.cli.main import main; main()"
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert wanted in done.stdout, done
