"""An endpoint for push subscriptions: prints each message and answers 204, until Ctrl-C.

Run it, then follow docs/first-steps.md.

python examples/webhook.py [port]
"""

import base64
import contextlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 9000


class Webhook(BaseHTTPRequestHandler):
    """A success status acknowledges the message; any other, or no answer, causes a redelivery."""

    protocol_version = "HTTP/1.1"  # connections are kept

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["message"]
        data = base64.b64decode(message.get("data", ""))
        print("received", message["messageId"], data, message.get("attributes", {}), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """The messages are enough."""


with ThreadingHTTPServer(("127.0.0.1", PORT), Webhook) as server, contextlib.suppress(KeyboardInterrupt):
    print(f"listening on http://127.0.0.1:{server.server_port}/; Ctrl-C ends", flush=True)
    server.serve_forever()
