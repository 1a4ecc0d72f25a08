"""What commands say of a server that gives no answer: what was seen, and what to do."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509

from tests.cli.client.terminal import Terminal
from tests.fixtures.tls import Pair, localhost, make_pair

Answer = Callable[[socket.socket], None]


@contextmanager
def _server(answer: Answer) -> Iterator[int]:
    """The port of a server that answers each connection so, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:  # it is closed
                    return
                with connection, suppress(OSError):  # the client has left, as it should
                    answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _with_tls(pair: Pair, directory: Path) -> Answer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair.write(directory, "server"))

    def answer(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as encrypted:
            encrypted.recv(4096)

    return answer


def _said(terminal: Terminal, url: str, *options: str) -> str:
    done = terminal.pipe(f"broker topic list --project p --url {url} {' '.join(options)}")
    assert done.code == 4
    assert done.text.startswith(f"broker: {url} ")
    assert done.text.count("\n") == 1
    return done.text.strip().removeprefix(f"broker: {url} ")


def test_a_certificate_of_the_servers_own_is_named_with_the_option_that_trusts_it(
    terminal: Terminal, tmp_path: Path
) -> None:
    with _server(_with_tls(localhost(), tmp_path)) as port:
        url = f"https://127.0.0.1:{port}"
        said = _said(terminal, url)
        assert said.startswith("has a certificate that is not trusted: self-signed certificate; ")
        assert "; --ca-file trusts the server's own certificate" in said
        assert "broker serve" not in said
        other, _ = make_pair().write(tmp_path, "other")
        assert _said(terminal, url, "--ca-file", other).endswith(
            f"{other} does not have the authority that signed it"
        )
        right, _ = localhost().write(tmp_path, "right")
        assert "certificate" not in _said(terminal, url, "--ca-file", right)
        assert "--ca-file" in terminal.pipe(f"broker doctor --json --url {url}").text


@pytest.mark.parametrize(
    ("pair", "seen", "remedy"),
    [
        (lambda: make_pair(days=-1), "certificate has expired", "renew the server's certificate"),
        (
            lambda: make_pair([x509.DNSName("broker.example.com")]),
            "mismatch, certificate is not valid for '127.0.0.1'",
            "call the server by a name or address that its certificate has",
        ),
        (
            lambda: make_pair([x509.IPAddress(ip_address("10.0.0.1"))]),
            "mismatch, certificate is not valid for '127.0.0.1'",
            "call the server by a name or address that its certificate has",
        ),
    ],
)
def test_what_is_wrong_with_a_trusted_certificate_is_said(
    pair: Callable[[], Pair], seen: str, remedy: str, terminal: Terminal, tmp_path: Path
) -> None:
    made = pair()
    trusted, _ = made.write(tmp_path, "trusted")
    with _server(_with_tls(made, tmp_path)) as port:
        said = _said(terminal, f"https://127.0.0.1:{port}", "--ca-file", trusted)
    assert seen in said
    assert said.endswith(f"; {remedy}")


def _speaks(text: bytes) -> Answer:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(text)

    return answer


@pytest.mark.parametrize(
    ("scheme", "text", "said"),
    [
        ("http", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "answers with something other than HTTP; "),
        ("http", b"\x15\x03\x01\x00\x02\x02\x46", "answers with something other than HTTP; is it https://"),
        ("http", b"", "accepts connections and closes them without an answer"),
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS as expected: "),
    ],
)
def test_another_protocol_is_not_said_to_be_an_absence(
    scheme: str, text: bytes, said: str, terminal: Terminal
) -> None:
    with _server(_speaks(text)) as port:
        assert _said(terminal, f"{scheme}://127.0.0.1:{port}").startswith(said)


def test_nobody_who_listens_and_a_name_that_is_none_cannot_be_reached(terminal: Terminal) -> None:
    for url in ("http://127.0.0.1:1", "http://no-such-host.invalid"):
        said = _said(terminal, url)
        assert said.startswith("cannot be reached: [Errno ")
        assert "`broker serve` starts a broker" in said


def test_a_server_that_wants_a_certificate_of_the_client_is_told_apart(terminal: Terminal, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key = localhost().write(tmp_path, "server")
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate)

    def answer(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as encrypted:
            encrypted.recv(4096)

    with _server(answer) as port:
        said = _said(terminal, f"https://127.0.0.1:{port}", "--ca-file", certificate)
    assert said.startswith("wants a certificate of the client; ")
