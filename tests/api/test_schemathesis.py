"""Generated requests, valid and invalid, for every operation of the specification.

Each is sent as it was generated, which mostly meets a resource that does not exist, and aimed at resources that do.
Whatever is sent, the broker answers in time, with a documented status that is no fault of its own, and with a body
as documented.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import requests
import schemathesis
from schemathesis import Case, GenerationMode
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.architecture.surface import operations, specification
from tests.fixtures.broker import BrokerProcess, Json

TIMEOUT_SECONDS = 15  # an answer that takes so long counts as none
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
PROJECT = "conformance"
TOPIC = f"projects/{PROJECT}/topics/topic"
SUBSCRIPTION = f"projects/{PROJECT}/subscriptions/subscription"
SNAPSHOT = f"projects/{PROJECT}/snapshots/snapshot"
DELIVERY = {"pull", "acknowledge", "modifyAckDeadline", "seek"}
EXISTING = {"project": PROJECT, "topic": "topic", "subscription": "subscription", "snapshot": "snapshot"}


@schemathesis.serializer("application/jsonl")
def lines_of_json(_context: Any, value: Any) -> bytes:
    """A line for each of a list; what is none is sent as it is, which is mostly wrong."""
    return b"".join(json.dumps(each).encode() + b"\n" for each in (value if isinstance(value, list) else [value]))


@schemathesis.serializer("application/avro")
def some_bytes(_context: Any, value: Any) -> bytes:
    """Mostly no file of Avro, which has tests of its own."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@cache
def load(max_examples: int) -> Any:
    schema = schemathesis.openapi.from_dict(dict(specification()))
    schema.config.generation.update(
        modes=list(GenerationMode), max_examples=max_examples, deterministic=True, database="none"
    )
    schema.config.phases.coverage.unexpected_methods = set()  # answered by 404 as by Google, not by 405
    return schema


@dataclass
class Target:
    """A broker with one resource of each kind, whatever the cases before did to them."""

    url: str
    session: requests.Session
    complete: bool = False  # whether all resources are in place
    made: int = 0

    def request(self, method: str, path: str, body: Json | None = None) -> requests.Response:
        return self.session.request(method, f"{self.url}/v1/{path}", json=body, timeout=TIMEOUT_SECONDS)

    def complete_resources(self) -> None:
        if self.complete:
            return
        self.request("PUT", TOPIC, {})
        self.request("DELETE", SUBSCRIPTION)  # it may be detached, or of a topic that is no more
        assert self.request("PUT", SUBSCRIPTION, {"topic": TOPIC}).ok
        self.request("DELETE", SNAPSHOT)
        assert self.request("PUT", SNAPSHOT, {"subscription": SUBSCRIPTION}).ok
        self.complete = True

    def deliver_messages(self) -> list[str]:
        """Publish three messages and pull one.  Returns its ack id."""
        message = {"data": "aGVsbG8=", "attributes": {"a": "b"}, "orderingKey": "k"}
        assert self.request("POST", f"{TOPIC}:publish", {"messages": [message] * 3}).ok
        pulled = self.request("POST", f"{SUBSCRIPTION}:pull", {"maxMessages": 1}).json()
        return [message["ackId"] for message in pulled.get("receivedMessages", [])]

    def check(self, case: Case[Any]) -> None:
        response = case.call(base_url=self.url, session=self.session, timeout=TIMEOUT_SECONDS)
        case.validate_response(response, checks=CHECKS)
        assert response.status_code < 500, response.text

    def check_aimed(self, case: Case[Any]) -> None:
        """Check the case at resources that exist and, where it makes one, at a name that is free."""
        names = case.path_parameters or {}
        if not names.keys() & EXISTING.keys() or "200" not in case.operation.responses.status_codes:
            return  # it names nothing, or is refused whatever it names
        if case.operation.path.endswith(":tail"):
            return  # it has no end
        self.complete_resources()
        delivers = case.operation.path.rpartition("/")[2].rpartition(":")[2] in DELIVERY
        body = _with_existing_names(case.body, self.deliver_messages() if delivers else [])
        self.check(_renamed(case, {key: EXISTING.get(key, value) for key, value in names.items()}, body))
        if case.method == "PUT":
            self.made += 1
            free = {key: PROJECT if key == "project" else f"made-{self.made}" for key in names}
            self.check(_renamed(case, free, body))
        self.complete = case.method != "DELETE" and not case.operation.path.endswith(":detach")


def _renamed(case: Case[Any], names: Json, body: Any) -> Case[Any]:
    renamed: Case[Any] = case.operation.Case(
        method=case.method,
        path_parameters=names,
        query=case.query,
        headers=case.headers,
        body=body,
        media_type=case.media_type,
    )
    return renamed


def _with_existing_names(body: Any, ack_ids: list[str]) -> Any:
    """A body whose references, where they are of the right type, are to what exists and can be changed."""
    if not isinstance(body, dict):
        return body
    good = {
        "topic": TOPIC,
        "subscription": SUBSCRIPTION,
        "snapshot": SNAPSHOT,
        "ackIds": ack_ids,
        "updateMask": "labels",
    }
    return {
        key: good[key] if key in good and isinstance(item, type(good[key])) else _unnamed(item)
        for key, item in body.items()
    }


def _unnamed(item: Any) -> Any:
    """A resource in a body without its name, which would have to be that of the path."""
    return {key: value for key, value in item.items() if key != "name"} if isinstance(item, dict) else item


@pytest.fixture(scope="module")
def target(clone: Callable[[], Any]) -> Iterator[Target]:
    """A broker of this module's own: its pulls do not wait long, and nobody minds what becomes of it."""
    with clone() as database_url, requests.Session() as session:
        environment = {"BROKER_PULL_WAIT_SECONDS": "0.05"}
        session.trust_env = False  # there is no proxy; to look for one takes a tenth of the time
        broker = BrokerProcess("--database-url", database_url, "--port", "0", env=environment).wait_until_ready()
        yield Target(broker.url, session)
        assert broker.stop() == 0
        faults = [line for line in broker.log if "Traceback" in line or " ERROR " in line]
        assert not faults, "\n".join(broker.log)


# An operation's cases are made when its test runs: to make all takes longer than to collect all other tests, and
# would be done in each of the processes that run tests.
EACH = pytest.mark.parametrize("operation", [operation["operationId"] for operation in operations().values()])


def _check_generated(operation: str, max_examples: int, target: Target) -> None:
    def check(case: Case[Any]) -> None:
        target.check(case)
        target.check_aimed(case)

    schema = load(max_examples).include(operation_id=operation)
    [made] = get_all_tests(schema=schema, test_func=check, settings=None, given_kwargs=None)
    _, check_all = made.ok()
    check_all()


@pytest.mark.slow
@pytest.mark.ci
@EACH
def test_every_operation_answers_generated_requests_as_documented(operation: str, target: Target) -> None:
    _check_generated(operation, 10, target)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@EACH
def test_every_operation_answers_many_generated_requests_as_documented(operation: str, target: Target) -> None:
    _check_generated(operation, 200, target)
