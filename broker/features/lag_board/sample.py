"""The values of a subscription's lag that are stored between samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from broker.core.lag.lag import KeyHolder, Lag, Skip, skip_warning, unmatched_warning
from broker.core.pushing.endpoint_failure import endpoint_failure_fields
from broker.model.timestamps import format_timestamp, parse_timestamp

MAX_DEAD_LETTERS = 100_000  # that are counted of one subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSample:
    """A row of `lag_samples`.

    The rates are in messages a second since the previous sample (None: there was none).  `details`: the fields of
    the API by which lists are neither ordered nor filtered.
    """

    subscription_id: int
    sampled_at: datetime
    undelivered_messages: int
    is_estimated: bool
    undelivered_bytes: int
    oldest_unacked_at: datetime | None
    outstanding_messages: int
    blocked_messages: int
    dead_letters: int
    published_messages: int
    state: str
    details: dict[str, Any]
    incoming_rate: float | None = None
    outgoing_rate: float | None = None

    @classmethod
    def of(cls, lag: Lag, *, dead_letters: int, now: datetime) -> Self:
        return cls(
            subscription_id=lag.subscription.subscription_id,
            sampled_at=now,
            undelivered_messages=lag.undelivered,
            is_estimated=lag.is_estimated,
            undelivered_bytes=lag.undelivered_bytes,
            oldest_unacked_at=lag.oldest,
            outstanding_messages=lag.outstanding,
            blocked_messages=lag.held,
            dead_letters=dead_letters,
            published_messages=lag.published,
            state=lag.state,
            details=_details(lag),
        )

    def warnings(self, now: datetime) -> Sequence[str]:
        """Returns sentences about messages that are not delivered although nothing waits."""
        skip, unmatched = self.details.get("lastSkip"), self.details.get("unmatchedMessages")
        found = [] if skip is None else [skip_warning(_skip_of(skip), now)]
        found += [unmatched_warning(unmatched)] if unmatched else []
        return [sentence for sentence in found if sentence]


def _details(lag: Lag) -> dict[str, Any]:
    details: dict[str, Any] = {"verdict": lag.verdict}
    if lag.skip is not None:
        details["lastSkip"] = _skip_json(lag.skip)
    if lag.unmatched:
        details["unmatchedMessages"] = lag.unmatched
    if lag.endpoint is not None:
        details["endpointFailure"] = endpoint_failure_fields(lag.endpoint)
    return details | ({} if lag.holder is None else {"blockedKey": _holder(lag.holder)})


def _holder(holder: KeyHolder) -> dict[str, Any]:
    return {
        "orderingKey": holder.ordering_key,
        "messageId": holder.message_id,
        "deliveryAttempt": holder.attempt_number,
        "deliverTime": format_timestamp(holder.delivered_at),
    }


def _skip_json(skip: Skip) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": skip.messages,
        "skipTime": format_timestamp(skip.at),
        "cause": "PURGE" if skip.is_purge else "SEEK",
    }
    return body | ({"principal": skip.by} if skip.by else {})


def _skip_of(fields: dict[str, Any]) -> Skip:
    return Skip(
        messages=fields["messages"],
        at=parse_timestamp(fields["skipTime"], "skipTime"),
        by=fields.get("principal", ""),
        is_purge=fields["cause"] == "PURGE",
    )
