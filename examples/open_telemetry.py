"""One trace leads from the code that publishes, through the broker, to the acknowledgement.

The example starts a broker that sends its spans to a receiver within this program, which stands for your collector.
Run it with an interpreter that has the broker's package with its extra `otel`, and httpx:

python examples/open_telemetry.py
"""

import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from own_broker import own_broker
from plain_http import Broker

PROJECT = "projects/example-open-telemetry"
TOPIC, SUB = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/worker"
spans: dict[str, bytes] = {}  # the id of its trace, by the name of the span


class Collector(BaseHTTPRequestHandler):
    """Takes spans as a collector does: OTLP over HTTP."""

    def do_POST(self) -> None:
        request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                spans.update({span.name: span.trace_id for span in scope.spans})
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{collector.server_port}"
    trace_id = secrets.token_hex(16)
    with (
        own_broker(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint) as own,
        Broker(SUB, TOPIC, url=own.url) as broker,
    ):
        broker.call("PUT", TOPIC, {})
        broker.call("PUT", SUB, {"topic": TOPIC})
        # Google's clients write this attribute when their tracing is on.
        broker.publish(TOPIC, "order 1", googclient_traceparent=f"00-{trace_id}-{secrets.token_hex(8)}-01")
        print("got", broker.pull(SUB))
    # A broker that stops sends its last spans.
    print("spans of the trace:", sorted(name for name, of in spans.items() if of.hex() == trace_id))
    collector.shutdown()
