"""Every command finds its server, project and credentials by one rule."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from broker.cli.main import command_line, main
from broker.client.api import DEFAULT_URL
from broker.client.calling import ClientCommand
from broker.client.connection import OPTIONS
from broker.client.google_credentials import VARIABLE
from tests.cli.client.answering import AnsweringServer
from tests.cli.client.terminal import Terminal

API_KEY = "a-key-that-nobody-may-see-0123456789"
GOOGLES = "https://oauth2.googleapis.com/token"


@cache
def _private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain).decode()


@pytest.fixture
def key_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes the key file of a service account."""

    def write(token_uri: str, name: str = "key.json", **fields: str) -> Path:
        key = {"type": "service_account", "client_email": "a@p.iam.broker.internal", "private_key_id": "1"}
        key |= {"private_key": _private_key(), "project_id": "of-the-key", "token_uri": token_uri} | fields
        file = tmp_path / name
        file.write_text(json.dumps(key))
        return file

    return write


def _commands(group: click.Group, words: tuple[str, ...] = ()) -> list[tuple[str, click.Command]]:
    found = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            found += _commands(command, (*words, name))
        elif isinstance(command, ClientCommand):
            found.append((" ".join((*words, name)), command))
    return found


def test_all_commands_that_call_a_server_have_the_options_of_the_one_rule() -> None:
    calling = {name: set(command.params) for name, command in _commands(command_line())}
    calling = {name: params for name, params in calling.items() if any("--url" in p.opts for p in params)}
    calling.pop("context set")  # it keeps a URL, and calls nobody
    assert len(calling) > 60
    assert [name for name, params in calling.items() if not params.issuperset(OPTIONS)] == []


@pytest.mark.parametrize("line", ["topic list", "sub list", "op list", "lag", "auth accounts list", "export"])
def test_every_command_takes_server_project_and_caller_from_the_key_file_that_google_s_variable_names(
    line: str,
    terminal: Terminal,
    server: AnsweringServer,
    key_file: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, str(key_file(f"{server.url}/token")))
    done = terminal.pipe(f"broker {line}")
    assert "calling" not in done.text
    path, headers = server.got[0]
    assert path.startswith("/v1/projects/of-the-key/")
    assert headers["Authorization"].startswith("Bearer eyJ")


def test_google_s_variable_is_asked_last(
    terminal: Terminal,
    server: AnsweringServer,
    key_file: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, str(key_file("http://127.0.0.1:1/token")))
    terminal.pipe(f"broker topic list --url {server.url}")
    monkeypatch.setenv("BROKER_URL", server.url)
    monkeypatch.setenv("BROKER_PROJECT", "of-the-variable")
    terminal.pipe("broker topic list")
    monkeypatch.setenv("BROKER_CREDENTIALS", API_KEY)
    terminal.pipe("broker topic list")
    paths = [path for path, _ in server.got]
    assert paths == [f"/v1/projects/{name}/topics" for name in ("of-the-key", *["of-the-variable"] * 2)]
    assert ["Authorization" in headers for _, headers in server.got] == [True, True, False]
    assert server.got[-1][1]["X-Goog-Api-Key"] == API_KEY


def test_a_context_that_an_option_names_goes_before_variables(
    terminal: Terminal, server: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.pipe(f"broker context set there --url {server.url} --project there --credentials {API_KEY}")
    monkeypatch.setenv("BROKER_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("BROKER_PROJECT", "elsewhere")
    monkeypatch.setenv("BROKER_CREDENTIALS", f"other-{API_KEY}")
    assert terminal.pipe("broker topic list").code == 4  # the context in use comes after variables
    assert terminal.pipe("broker topic list --context there").code == 0
    [(path, headers)] = server.got
    assert (path, headers["X-Goog-Api-Key"]) == ("/v1/projects/there/topics", API_KEY)


@pytest.mark.parametrize("output", [(), ("--json",)])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, f"{VARIABLE} is a key of {GOOGLES}, which no broker takes"),
        (
            {"token_uri": "https://oauth2.example.com/token", "universe_domain": "example.com"},
            f"{VARIABLE} is a key of https://oauth2.example.com/token, which no broker takes",
        ),
        (
            {"private_key_id": None, "type": "authorized_user"},
            f"{VARIABLE} is a credential of type authorized_user, ",
        ),
    ],
)
def test_calling_the_default_server_although_a_credential_names_another_is_said_on_standard_error(
    fields: dict[str, str],
    said: str,
    output: tuple[str, ...],
    key_file: Callable[..., Path],
    terminal: Terminal,  # whose environment has nothing else
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, str(key_file(**({"token_uri": GOOGLES} | fields))))
    monkeypatch.setattr("broker.client.connection.DEFAULT_URL", "http://127.0.0.1:1")
    code = main(["topic", "list", "--project", "p", *output])
    printed = capsys.readouterr()
    first = printed.err.splitlines()[0]
    assert (code, printed.out) == (4, "")
    assert first.startswith("broker: calling http://127.0.0.1:1, the default; ")
    assert said in first
    assert "no credentials are sent" in first


def test_a_foreign_credential_is_not_sent_to_a_server_that_is_named_and_nothing_is_said_of_it(
    terminal: Terminal,
    server: AnsweringServer,
    key_file: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, str(key_file(GOOGLES)))
    done = terminal.pipe(f"broker topic list --project p --url {server.url}")
    assert "broker: " not in done.text
    assert "Authorization" not in server.got[0][1]


def test_a_key_without_a_server_is_said_to_go_to_the_default_one(
    terminal: Terminal, key_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.client.connection.DEFAULT_URL", "http://127.0.0.1:1")
    key = key_file(GOOGLES)
    done = terminal.pipe(f"broker topic list --project p --credentials {key}")
    assert f"calling http://127.0.0.1:1, the default; --credentials names {GOOGLES}" in done.text
    monkeypatch.setenv(VARIABLE, str(key_file("https://broker.example.com/token")))
    done = terminal.pipe(f"broker topic list --project p --credentials {API_KEY}")
    assert f"{VARIABLE} names https://broker.example.com, but the API key" in done.text
    assert API_KEY not in done.text
    monkeypatch.delenv(VARIABLE)
    assert "calling" not in terminal.pipe("broker topic list --project p").text


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "No such file or directory"), ("{", "is not JSON"), ("[]", "is no credential, which is a JSON object")],
)
def test_a_credential_that_cannot_be_read_is_a_mistake_only_where_it_is_needed(
    text: str | None,
    said: str,
    terminal: Terminal,
    server: AnsweringServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "google.json"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv(VARIABLE, str(file))
    line = f"broker topic list --project p --url {server.url}"
    done = terminal.pipe(line)
    assert (done.code, f"{VARIABLE} {file}" in done.text, said in done.text) == (2, True, True)
    assert terminal.pipe(f"{line} --credentials {API_KEY}").code == 0


def test_the_default_server_is_the_one_that_help_names() -> None:
    assert DEFAULT_URL in (OPTIONS[0].help or "")
