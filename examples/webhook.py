"""An endpoint that pushes can be sent to: prints each message and answers 204.  Run it, then follow the README."""

import base64
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 9000


class Webhook(BaseHTTPRequestHandler):
    """A success status acknowledges the message; any other, or no answer, has it sent again."""

    protocol_version = "HTTP/1.1"  # connections are kept

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = body["message"]
        print(message["messageId"], base64.b64decode(message["data"]), message["attributes"], flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """The messages are enough."""


ThreadingHTTPServer(("127.0.0.1", PORT), Webhook).serve_forever()
