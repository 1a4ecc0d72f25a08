"""A server that answers every call as a test says, and remembers what it was sent."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest


class AnsweringServer(HTTPServer):
    """Another server of the API, or what one takes for such: it answers as it is told to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.answer: tuple[int, bytes] = (200, b"{}")
        self.answers: dict[str, tuple[int, bytes]] = {}  # by how paths end, where that is not `answer`
        self.got: list[tuple[str, dict[str, str]]] = []
        self.sent: list[bytes] = []  # with each POST

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answering(BaseHTTPRequestHandler):
    server: AnsweringServer

    def do_GET(self) -> None:
        self.server.got.append((self.path, dict(self.headers)))
        path = self.path.partition("?")[0]
        status, body = next((a for end, a in self.server.answers.items() if path.endswith(end)), self.server.answer)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.server.sent.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_POST()

    def do_PATCH(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    with AnsweringServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def error_answer(code: int, status: str) -> tuple[int, bytes]:
    """An error as Google's API has it."""
    return code, json.dumps({"error": {"code": code, "status": status, "message": f"It is {status}."}}).encode()
