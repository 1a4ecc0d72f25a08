"""OpenTelemetry spans of publishes and deliveries.  Imported only if tracing is enabled.

A message carries the context of its publisher in its attributes: `googclient_traceparent`, which Google's
clients write (their `enable_open_telemetry_tracing`), or `traceparent`.  The broker's spans are its children: one
trace leads from the publisher's code to the subscriber's.  Names and attributes follow
https://opentelemetry.io/docs/specs/semconv/messaging/gcp-pubsub/.
"""

import json
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import time_ns

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, get_current_span
from opentelemetry.trace.propagation import set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_KEYS = ("googclient_traceparent", "traceparent")
_STATES = ("googclient_tracestate", "tracestate")
MAX_LINKS = 128  # as the SDK has them by default
MAX_OUT = 10_000  # delivery attempts whose messages' traces are known until they are acknowledged


class Tracing:
    """The spans of a process.  It remembers the messages that it delivers, and learns of others' by `found`."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("pubsub-broker")
        self._propagator = TraceContextTextMapPropagator()
        self._out: OrderedDict[tuple[int, int], tuple[str, dict[int, Context]]] = OrderedDict()

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    @contextmanager
    def publishing(
        self, topic: str, attributes: Sequence[Mapping[str, str]], traceparent: bytes
    ) -> Iterator[list[str]]:
        """A publish request of messages with these attributes; what is put into the list are their ids.

        `traceparent`: of the request (b"": none).
        """
        contexts = [context for each in attributes if (context := self._context_of(each)) is not None]
        asked = self._extract({"traceparent": traceparent.decode("latin-1")}) if traceparent else None
        links = [Link(get_current_span(each).get_span_context()) for each in contexts[:MAX_LINKS]]
        parent = asked or (contexts[0] if contexts else Context())
        about = _about("publish", "send", topic) | {"messaging.batch.message_count": len(attributes)}
        span = self._tracer.start_span(
            f"publish {_leaf(topic)}", parent, SpanKind.SERVER, attributes=about, links=links
        )
        ids: list[str] = []
        try:
            yield ids
        except BaseException as error:
            span.set_status(Status(StatusCode.ERROR, str(getattr(error, "code", type(error).__name__))))
            raise
        finally:
            if len(ids) == 1:
                span.set_attribute("messaging.message.id", ids[0])
            span.end()

    def handed_out(
        self, subscription: str, attempt: tuple[int, int], messages: Sequence[tuple[str, str]], seconds: float
    ) -> None:
        """Messages, by id and attributes (JSON), left the broker for a pull, `seconds` after they were claimed.

        `attempt`: its shard and id.
        """
        contexts: dict[int, Context] = {}
        now = time_ns()
        for index, (message_id, attributes) in enumerate(messages):
            context = self._context_in(attributes)
            if context is not None:
                about = _about("pull", "receive", subscription) | {"messaging.message.id": message_id}
                started = now - int(seconds * 1e9)
                span = self._tracer.start_span(
                    f"receive {_leaf(subscription)}", context, SpanKind.SERVER, attributes=about, start_time=started
                )
                span.end(now)
                contexts[index] = context
        self._remember(subscription, attempt, contexts)

    def knows(self, attempt: tuple[int, int]) -> bool:
        """Whether this process has delivered the attempt, or was given it by `found`."""
        return attempt in self._out

    def found(self, subscription: str, attempt: tuple[int, int], attributes: Mapping[int, str]) -> None:
        """Remembers messages that another process has delivered: their attributes (JSON), by their index."""
        contexts = {index: self._context_in(each) for index, each in attributes.items()}
        known = {index: context for index, context in contexts.items() if context is not None}
        self._remember(subscription, attempt, known)

    def acked(self, attempt: tuple[int, int], indexes: Collection[int]) -> None:
        """Messages of an attempt were acknowledged."""
        subscription, contexts = self._out.get(attempt, ("", {}))
        for index in indexes:
            context = contexts.pop(index, None)
            if context is not None:
                about = _about("ack", "settle", subscription)
                self._tracer.start_span(
                    f"ack {_leaf(subscription)}", context, SpanKind.SERVER, attributes=about
                ).end()
        if not contexts:
            self._out.pop(attempt, None)

    def pushing(
        self, subscription: str, messages: Sequence[tuple[tuple[int, int], int, str, str]]
    ) -> tuple[Span, dict[str, str]]:
        """The span of a push, which `pushed` ends, and headers for the endpoint.

        Of each message: its attempt and index within it, its id and attributes (JSON).
        """
        known = [(each, context) for each in messages if (context := self._context_in(each[3])) is not None]
        parent = known[0][1] if known else Context()
        links = [Link(get_current_span(context).get_span_context()) for _, context in known[:MAX_LINKS]]
        about = _about("push", "send", subscription) | {"messaging.batch.message_count": len(messages)}
        if len(messages) == 1:
            about["messaging.message.id"] = messages[0][2]
        name = f"push {_leaf(subscription)}"
        span = self._tracer.start_span(name, parent, SpanKind.CLIENT, attributes=about, links=links)
        contexts = {(attempt, index): context for (attempt, index, _, _), context in known}
        for attempt, index, _, _ in messages:
            _, others = self._out.get(attempt, ("", {}))
            own = contexts.get((attempt, index))
            self._remember(subscription, attempt, others if own is None else others | {index: own})
        headers: dict[str, str] = {}
        self._propagator.inject(headers, set_span_in_context(span, parent))
        return span, headers

    def pushed(self, span: Span, status: int | None) -> None:
        """Ends the span of a push; `status`: of the answer (None: there was none)."""
        if status is not None:
            span.set_attribute("http.response.status_code", status)
        if status is None or status >= 300:
            span.set_status(Status(StatusCode.ERROR, "no answer" if status is None else f"status {status}"))
        span.end()

    def _remember(self, subscription: str, attempt: tuple[int, int], contexts: dict[int, Context]) -> None:
        """Remembers the contexts of an attempt, even if there are none, so that nobody searches for them."""
        self._out[attempt] = subscription, contexts
        if len(self._out) > MAX_OUT:
            self._out.popitem(last=False)

    def _context_in(self, attributes: str) -> Context | None:
        return self._context_of(json.loads(attributes)) if "traceparent" in attributes else None

    def _context_of(self, attributes: Mapping[str, str]) -> Context | None:
        for key, state in zip(_KEYS, _STATES, strict=True):
            if key in attributes:
                return self._extract({"traceparent": attributes[key], "tracestate": attributes.get(state, "")})
        return None

    def _extract(self, carrier: dict[str, str]) -> Context | None:
        context = self._propagator.extract(carrier, Context())
        return context if get_current_span(context).get_span_context().is_valid else None


def start_tracing() -> Tracing:
    """Starts tracing by the standard variables OTEL_…, which the SDK reads.

    The service is `pubsub-broker` unless they name another.
    """
    service = Resource({"service.name": "pubsub-broker"})
    provider = TracerProvider(resource=service.merge(_given()), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)


def _given() -> Resource:
    given = Resource.create()
    if str(given.attributes.get("service.name", "")).startswith("unknown_service"):
        return Resource({name: value for name, value in given.attributes.items() if name != "service.name"})
    return given


def _about(name: str, kind: str, resource: str) -> dict[str, str | int]:
    _, project, collection, leaf = resource.split("/", 3)
    about: dict[str, str | int] = {
        "messaging.system": "gcp_pubsub",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": leaf,
        "gcp.project_id": project,
    }
    return about if collection == "topics" else about | {"messaging.destination.subscription.name": leaf}


def _leaf(resource: str) -> str:
    return resource.rpartition("/")[2]
