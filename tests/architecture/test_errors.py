"""Every error has a translation: each BrokerError to a status, each error of PostgreSQL to a BrokerError."""

import json
from collections.abc import Iterator

import grpc
import psycopg
import pytest
from psycopg import errors as pg

from broker.api.grpc.errors import GRPC_STATUS, error_trailers
from broker.api.rest.errors import HTTP_STATUS, encode_error
from broker.db.driver import postgres_errors
from broker.model import errors
from broker.model.errors import BrokerError


def _subclasses(base: type[BrokerError]) -> Iterator[type[BrokerError]]:
    for subclass in base.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


BROKER_ERRORS = [error for error in _subclasses(BrokerError) if error.__module__.startswith("broker.")]
POSTGRES_ERRORS = [
    error for error in vars(pg).values() if isinstance(error, type) and issubclass(error, psycopg.Error)
]


def test_every_broker_error_has_a_status_and_a_body() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo"}
    for error in BROKER_ERRORS:
        status, body, retry_after = encode_error(error("why", details=[info]))
        answer = json.loads(body)["error"]
        details = answer.pop("details")
        assert answer == {"code": status, "message": "why", "status": error.code}
        assert details[0] == info, error
        assert len(details) == (1 if retry_after is None else 2), error


@pytest.mark.parametrize("error", BROKER_ERRORS, ids=lambda error: error.__name__)
def test_a_call_that_may_be_sent_again_as_it_is_is_told_when_and_not_all_at_one_moment(
    error: type[BrokerError],
) -> None:
    answers = [encode_error(error("why")) for _ in range(20)]
    if error.code not in ("RESOURCE_EXHAUSTED", "UNAVAILABLE"):
        assert {answer.retry_after for answer in answers} == {None}
        return
    delays = set()
    for answer in answers:
        [info] = json.loads(answer.body)["error"]["details"]
        assert info["@type"] == "type.googleapis.com/google.rpc.RetryInfo"
        assert info["retryDelay"].endswith("s")
        delay = float(info["retryDelay"][:-1])
        assert answer.retry_after is not None
        assert 0 < delay <= answer.retry_after < delay + 1
        delays.add(delay)
    assert len(delays) > 1


def test_every_broker_error_has_a_status_of_grpc() -> None:
    for error in BROKER_ERRORS:
        trailers = dict(error_trailers(error("5 % of “why”\n")))
        assert trailers[b"grpc-status"] == b"%d" % grpc.StatusCode[error.code].value[0], error
        assert trailers[b"grpc-message"] == b"5 %25 of %E2%80%9Cwhy%E2%80%9D%0A", error


def test_both_apis_know_the_same_codes() -> None:
    assert GRPC_STATUS.keys() - {"OK", "CANCELLED"} == HTTP_STATUS.keys()
    assert {name: grpc.StatusCode[name].value[0] for name in GRPC_STATUS} == GRPC_STATUS


def test_no_status_is_left_for_a_code_that_no_error_has() -> None:
    """Those of authentication wait for the errors that will have them."""
    assert HTTP_STATUS.keys() - {error.code for error in BROKER_ERRORS} == set()


def test_every_error_is_drawn_in_the_tree() -> None:
    assert errors.__doc__ is not None
    for error in BROKER_ERRORS:
        assert f" {error.__name__} " in errors.__doc__


def test_every_error_of_postgresql_is_translated() -> None:
    assert len(POSTGRES_ERRORS) > 200
    for error in POSTGRES_ERRORS:
        assert postgres_errors.translate(error("why")).code in HTTP_STATUS


def test_no_translation_is_hidden_by_an_earlier_one() -> None:
    translated = [(cause, postgres_errors.translate(cause("why"))) for cause, _, _ in postgres_errors.ERRORS]
    assert [(cause, error.message) for cause, error in translated] == [
        (cause, message) for cause, _, message in postgres_errors.ERRORS
    ]
    for (_, error), (_, meaning, _) in zip(translated, postgres_errors.ERRORS, strict=True):
        assert isinstance(error, meaning)


@pytest.mark.parametrize(
    ("sqlstate", "code"),
    [
        ("40P01", "ABORTED"),  # deadlock_detected
        ("40001", "ABORTED"),  # serialization_failure
        ("57014", "UNAVAILABLE"),  # query_canceled: the statement timeout
        ("57P01", "UNAVAILABLE"),  # admin_shutdown
        ("53300", "UNAVAILABLE"),  # too_many_connections
        ("08006", "UNAVAILABLE"),  # connection_failure
        ("22021", "INVALID_ARGUMENT"),  # character_not_in_repertoire
        ("23505", "ABORTED"),  # unique_violation: two that made the same thing at once
        ("42601", "INTERNAL"),  # syntax_error
    ],
)
def test_what_a_sqlstate_means_to_the_caller(sqlstate: str, code: str) -> None:
    assert postgres_errors.translate(pg.lookup(sqlstate)("why")).code == code
