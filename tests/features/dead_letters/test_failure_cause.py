"""Causes of dead letters: what responses have in common, whatever differs between messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.model.failure_cause import MAX_RESPONSE, FailureCause, normalised_response, stored_cause


@pytest.mark.parametrize(
    ("response", "normalised"),
    [
        ("order 17 is unknown", "order {number} is unknown"),
        ("took 12.5ms, limit 10ms", "took {number}ms, limit {number}ms"),
        ("at 2026-11-27T13:31:18.25Z: no stock", "at {time}: no stock"),
        ("at 2026-11-27 13:31:18: no stock", "at {time} {time}: no stock"),
        ("connect to 10.0.0.17:5432 failed", "connect to {address} failed"),
        ("connect to [2001:db8::17]:5432 failed", "connect to {address} failed"),
        ("connect to 2001:db8::17 failed", "connect to {address} failed"),
        ("no account for ann.lee+x@mail.example.com.", "no account for {address}."),
        ("trace 6f1f6a4e-0f0e-4a53-8b5e-0d8e1f1f6a4e", "trace {id}"),
        ("commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "commit {id}"),
        ("request req_8Fk3dQ29xLmA failed", "request {id} failed"),
        ('{"code": 4711, "error":  "out of\\nstock"}', '{"code": {number}, "error": "out of\\nstock"}'),
        ("several\n\tlines\0 of text", "several lines of text"),
        ("the unavailable-for-maintenance page", "the unavailable-for-maintenance page"),
        ("", ""),
    ],
)
def test_what_differs_between_messages_is_replaced_by_its_kind(response: str, normalised: str) -> None:
    assert normalised_response(response) == normalised


@given(st.text(max_size=1_000), st.sampled_from(["push 503", "push unreachable", "nack"]))
def test_any_response_is_stored_with_its_reason_and_read_again(text: str, reason: str) -> None:
    cause = FailureCause(reason, normalised_response(text))
    assert stored_cause(cause.stored) == cause
    assert len(cause.response) <= MAX_RESPONSE
    assert "\0" not in cause.stored
    assert cause.stored.count("\n") == bool(cause.response)
    assert stored_cause(cause.stored).fingerprint == cause.fingerprint


def test_causes_with_different_reasons_or_responses_have_different_fingerprints() -> None:
    causes = [
        FailureCause(reason, response) for reason in ("push 500", "push 503") for response in ("", "no", "yes")
    ]
    assert len({cause.fingerprint for cause in causes}) == 6
    assert FailureCause("push 503", "no").fingerprint == "91acf189326b21b3"
