"""One trace leads from the code that publishes, through the broker, to the code that receives (OpenTelemetry)."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.types import PublisherOptions, SubscriberOptions
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.app.settings.find import SettingError, asks_for_traces
from broker.observability.metrics.counters import Counters
from broker.observability.tracing import start_tracing
from tests.cli.processes import complaint
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, Rest, message
from tests.fixtures.google import Handler
from tests.fixtures.in_process import running_in_process
from tests.fixtures.otlp import receiving, value_of
from tests.fixtures.push_sink import PushSink

pytestmark = [pytest.mark.slow, pytest.mark.ci]

OURS, THEIRS = "pubsub-broker", "the user's"


def _publish_and_receive(topic: str, subscription: str) -> str:
    """As a program that traces does; the id of its trace, in hexadecimal."""
    publisher = pubsub_v1.PublisherClient(publisher_options=PublisherOptions(enable_open_telemetry_tracing=True))
    options = SubscriberOptions(enable_open_telemetry_tracing=True)
    with pubsub_v1.SubscriberClient(subscriber_options=options) as subscriber:
        handler = Handler(lambda message: message.ack_with_response())
        streaming = subscriber.subscribe(subscription, handler)
        with trace.get_tracer("program").start_as_current_span("order") as span:
            publisher.publish(topic, b"m").result(timeout=20)
        handler.wait_for(1)
        streaming.cancel()
        streaming.result()
    publisher.stop()
    publisher.transport.close()
    return f"{span.get_span_context().trace_id:032x}"


async def test_one_trace_goes_from_the_publisher_s_code_to_its_subscriber_s_and_to_the_endpoint(
    database_url: str, push_sink: PushSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        theirs = TracerProvider(resource=Resource({"service.name": THEIRS}), shutdown_on_exit=False)
        theirs.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(theirs)
        counters = Counters()
        counters.tracing = start_tracing()
        broker = Broker(AppConfig(database_url=database_url), counters=counters)
        async with running_in_process(broker) as client:
            monkeypatch.setenv("PUBSUB_EMULATOR_HOST", client.base_url.netloc.decode())
            rest, path = Rest(client, "projects/p"), f"/status/200/{uuid4().hex}"
            await rest.create_topic()
            await rest.create_subscription()
            await rest.create_subscription("pushed", pushConfig={"pushEndpoint": push_sink.url + path})
            trace_id = await asyncio.to_thread(_publish_and_receive, rest.topic(), rest.subscription())
            [pushed] = await push_sink.wait_for(path, 1)
        await asyncio.to_thread(counters.tracing.close)
        theirs.shutdown()
    spans = receiver.spans
    ours = {name: span for (service, name), span in spans.items() if service == OURS}
    assert set(ours) == {"publish topic", "receive sub", "ack sub", "push pushed", "ack pushed"}
    created, received = spans[THEIRS, "topic create"], spans[THEIRS, "sub subscribe"]
    assert {span.trace_id.hex() for span in [*ours.values(), created, received]} == {trace_id}
    assert {span.parent_span_id for span in [*ours.values(), received]} == {created.span_id}
    assert value_of(ours["publish topic"], "messaging.batch.message_count") == 1
    ids = {str(value_of(ours[name], "messaging.message.id")) for name in ("publish topic", "receive sub")}
    assert len(ids) == 1
    assert pushed.headers["traceparent"].startswith(f"00-{trace_id}-{ours['push pushed'].span_id.hex()}-")
    assert value_of(ours["push pushed"], "http.response.status_code") == 200


async def test_a_broker_that_is_stopped_sends_its_last_spans(
    database_url: str, start_broker: Callable[..., BrokerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        broker = start_broker("--database-url", database_url, "--port", "0")
        async with httpx.AsyncClient(base_url=broker.url, verify=NO_TLS) as client:
            rest = Rest(client, "projects/p")
            await rest.create_topic()
            await rest.publish("m")
        broker.stop()
    assert set(receiver.spans) == {(OURS, "publish topic")}


async def test_a_publish_is_a_child_of_its_request(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trace_id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        counters = Counters()
        counters.tracing = start_tracing()
        async with running_in_process(Broker(AppConfig(database_url=database_url), counters=counters)) as client:
            rest = Rest(client, "projects/p")
            await rest.create_topic()
            headers = {"traceparent": f"00-{trace_id}-{parent}-01"}
            body = {"messages": [{"data": "bQ=="}]}
            await client.post(f"/v1/{rest.topic()}:publish", json=body, headers=headers)
            await client.post(f"/v1/{rest.topic('none')}:publish", json=body, headers=headers)
        await asyncio.to_thread(counters.tracing.close)
    for name in ("publish topic", "publish none"):
        span = receiver.spans[OURS, name]
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (trace_id, parent)
    assert receiver.spans[OURS, "publish none"].status.message == "NOT_FOUND"


@pytest.mark.parametrize("kind", [{}, {"enableMessageOrdering": True}, {"enableExactlyOnceDelivery": True}])
async def test_an_ack_through_another_process_has_its_span_in_the_trace_of_its_message(
    database_url: str, monkeypatch: pytest.MonkeyPatch, kind: Json
) -> None:
    trace_ids = [f"0af7651916cd43dd8448eb211c8031{n:02}" for n in range(2)]
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        counters = Counters()
        counters.tracing = start_tracing()
        here, there = (
            Broker(AppConfig(database_url=database_url)),
            Broker(AppConfig(database_url=database_url), counters=counters),
        )
        async with running_in_process(here) as client, running_in_process(there) as another:
            rest, other = Rest(client, "projects/p"), Rest(another, "projects/p")
            await rest.create_topic()
            await rest.create_subscription(**kind)
            parents = [f"00-{trace_id}-b7ad6b7169203331-01" for trace_id in trace_ids]
            traced = [message("m", {"googclient_traceparent": parent}) for parent in parents]
            await rest.publish(*({"orderingKey": "k"} | each for each in (message("untraced"), *traced)))
            received = await rest.pull()
            assert len(received) == 3
            await other.acknowledge(received[:2])
        await asyncio.to_thread(counters.tracing.close)
    ack = receiver.spans[OURS, "ack sub"]
    assert (ack.trace_id.hex(), ack.parent_span_id.hex()) == (trace_ids[0], "b7ad6b7169203331")
    assert set(receiver.spans) == {(OURS, "ack sub")}


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
        ({"OTEL_SERVICE_NAME": "broker"}, False),
    ],
)
def test_the_standard_variables_switch_traces_on(variables: dict[str, str], asked: bool) -> None:
    assert asks_for_traces(variables) is asked


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"])
def test_a_protocol_that_traces_are_not_sent_by_is_refused_by_name(name: str) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
    for protocol in ("grpc", "http/json"):
        with pytest.raises(SettingError, match=f"{name} must be http/protobuf, not '{protocol}': .* 4318"):
            asks_for_traces(endpoint | {name: protocol})
        assert not asks_for_traces({name: protocol})  # nobody asks for traces
    assert asks_for_traces(endpoint | {name: "http/protobuf"})
    of_traces = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    assert asks_for_traces(endpoint | of_traces)


def test_a_broker_that_is_told_another_protocol_does_not_start_and_makes_nothing(tmp_path: Path) -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    said = complaint("serve", "--port", "0", "--data-dir", str(tmp_path / "data"), env=variables, code=2)
    assert said.startswith("OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf, not 'grpc'")
    assert not (tmp_path / "data").exists()
