"""How far behind subscriptions are, and what holds each (F3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from broker.domain.durations import format_duration
from broker.domain.endpoint_failure import describe_failing_endpoint, describe_failing_message
from broker.domain.pause import Pause
from broker.domain.push_state import PushState
from broker.domain.subscription import Subscription, unread_dead_letters
from broker.domain.timestamps import format_timestamp

# What is looked at of one subscription in one shard: some milliseconds.  Beyond, figures are estimates.
MAX_ATTEMPTS = 1_000  # rows that are out: responses, or ordering keys
MAX_BATCHES = 10_000  # of messages that wait for their ordering keys
MAX_SCANNED = 500  # messages that are compared with the filter

IDLE_AFTER = timedelta(minutes=3)  # use is written down once a minute, a minute late at the most
SLOW_AFTER = timedelta(seconds=10)  # so old a message may be before anybody is called slow


class HeldBy(StrEnum):
    """What holds a subscription: the first of these that is so."""

    DETACHED = "DETACHED"
    EXPORT = "EXPORT"  # messages are for another service, and nothing is exported
    NOTHING = "NOTHING"
    PAUSED = "PAUSED"
    ENDPOINT_FAILING = "ENDPOINT_FAILING"
    WAITS_FOR_SLOTS = "WAITS_FOR_SLOTS"
    NOBODY_PULLS = "NOBODY_PULLS"
    STUCK_KEY = "STUCK_KEY"
    RETRYING = "RETRYING"
    SLOW_ENDPOINT = "SLOW_ENDPOINT"
    SLOW_CONSUMERS = "SLOW_CONSUMERS"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHolder:
    """The message that all later ones of its ordering key wait for; it was handed out `attempt_number` times, last
    at `delivered_at`.  `is_out`: it is still with whoever got it, or was until its deadline.
    """

    ordering_key: str
    message_id: str
    attempt_number: int
    is_out: bool
    delivered_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLag:
    """One subscription in one shard.  `unclaimed` messages were never handed out (with a filter: those that match
    are `matching` of the first `scanned`), `outstanding` ones were and are not acked, in so many `attempts` (rows),
    `retrying` of them were nacked; `held` ones wait for their ordering keys.  Messages have `message_size` bytes.
    """

    subscription_id: int
    last_active_at: datetime
    unclaimed: int = 0
    oldest_unclaimed: datetime | None = None
    scanned: int | None = None
    matching: int | None = None
    attempts: int = 0
    outstanding: int = 0
    retrying: int = 0
    highest_attempt: int | None = None
    oldest_outstanding: datetime | None = None
    held: int = 0
    held_batches: int = 0
    message_size: float = 0.0
    holder: KeyHolder | None = None

    @property
    def wanted(self) -> int:
        """Those that were never handed out and match the filter."""
        if self.scanned is None or self.matching is None:
            return self.unclaimed
        if self.scanned < MAX_SCANNED:
            return self.matching
        return round(self.unclaimed * self.matching / self.scanned)

    @property
    def is_estimated(self) -> bool:
        return (
            (self.scanned or 0) >= MAX_SCANNED or self.attempts >= MAX_ATTEMPTS or self.held_batches >= MAX_BATCHES
        )


@dataclass(frozen=True, slots=True)
class Delivering:
    """By whom messages go out: what is known of the endpoint (None: nothing), and how many pull or stream."""

    push_state: PushState | None = None
    readers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """One subscription.  `oldest`: when its oldest message that is not acked was published (None: there is none).

    `undelivered` messages are not acked, `outstanding` of them are out or wait to be tried again, `held` wait for
    their ordering keys.  `undelivered_bytes` is an estimate always, `undelivered` if it says so.  `verdict` is
    `held_by` as a sentence; `warnings` are others, of what holds nothing and loses something.  `endpoint`: the
    state of the endpoint if it fails.
    """

    subscription: Subscription
    held_by: HeldBy
    verdict: str
    oldest: datetime | None = None
    undelivered: int = 0
    is_estimated: bool = False
    undelivered_bytes: int = 0
    outstanding: int = 0
    held: int = 0
    holder: KeyHolder | None = None
    endpoint: PushState | None = None
    warnings: Sequence[str] = ()

    def rank(self) -> tuple[float, int, str]:
        """Lags in this order have the oldest message first."""
        return (
            float("inf") if self.oldest is None else self.oldest.timestamp(),
            -self.undelivered,
            self.subscription.name,
        )


def lag_of(subscription: Subscription, shards: Sequence[ShardLag], delivering: Delivering, now: datetime) -> Lag:
    """How far behind a subscription is, from where it stands in its shards."""
    held = sum(shard.held for shard in shards)
    outstanding = sum(shard.outstanding for shard in shards)
    oldest = [t for shard in shards for t in (shard.oldest_outstanding, shard.oldest_unclaimed) if t is not None]
    undelivered = sum(shard.wanted for shard in shards) + outstanding + held
    holders = [shard.holder for shard in shards if shard.holder is not None]
    holder = min(holders, key=lambda h: h.delivered_at, default=None) if held else None
    held_by, verdict = _judge(subscription, shards, delivering, holder, min(oldest, default=None), now)
    state = delivering.push_state
    return Lag(
        subscription=subscription,
        held_by=held_by,
        verdict=verdict,
        oldest=min(oldest, default=None),
        undelivered=undelivered,
        is_estimated=any(shard.is_estimated for shard in shards),
        undelivered_bytes=round(sum((s.wanted + s.outstanding + s.held) * s.message_size for s in shards)),
        outstanding=outstanding,
        held=held,
        holder=holder if held_by is HeldBy.STUCK_KEY else None,
        endpoint=state.as_of(now) if held_by is HeldBy.ENDPOINT_FAILING and state is not None else None,
        warnings=_warnings(subscription),
    )


def _warnings(subscription: Subscription) -> list[str]:
    """Sentences about what is wrong though it holds nothing."""
    policy = subscription.dead_letter_policy
    if policy is not None and not subscription.dead_letter_topic_id:
        topic = policy.dead_letter_topic
        return [f"Its dead-letter topic {topic} does not exist; what fails is delivered again and again."]
    unread = unread_dead_letters(subscription)
    return [f"{unread[0].upper()}{unread[1:]}."] if unread else []


def _judge(
    subscription: Subscription,
    shards: Sequence[ShardLag],
    delivering: Delivering,
    holder: KeyHolder | None,
    oldest: datetime | None,
    now: datetime,
) -> tuple[HeldBy, str]:
    if subscription.detached:
        return HeldBy.DETACHED, "It is detached: it gets no messages."
    if oldest is None:
        return HeldBy.NOTHING, "Nothing waits."
    if subscription.export:
        return HeldBy.EXPORT, f"Its messages are for a {subscription.export}, and this broker exports nothing."
    if subscription.pause is not None:
        return HeldBy.PAUSED, _paused(subscription.pause, is_push=subscription.is_push)
    stopped = (
        endpoint_verdict(delivering.push_state, now)
        if subscription.is_push
        else _idle(shards, delivering.readers, now)
    )
    if stopped is not None:
        return stopped
    retrying, tries = sum(shard.retrying for shard in shards), max(shard.highest_attempt or 0 for shard in shards)
    if holder is not None and (holder.attempt_number > 1 or now - holder.delivered_at > SLOW_AFTER):
        return HeldBy.STUCK_KEY, _stuck(holder, sum(shard.held for shard in shards))
    if retrying and retrying == sum(shard.outstanding + shard.wanted for shard in shards):
        verdict = f"All {retrying} have failed, up to {tries} times, and are tried again later."
        return HeldBy.RETRYING, verdict + _longest_failing(delivering.push_state)
    age = now - oldest
    if age < SLOW_AFTER:
        return HeldBy.NOTHING, "Nothing holds it: its messages are young."
    if subscription.is_push and (retrying or tries > 1) and not _is_backlog_old(shards, now):
        return HeldBy.RETRYING, _retried(retrying, tries) + _longest_failing(delivering.push_state)
    out = sum(shard.outstanding for shard in shards)
    figures = f"{out} are out, the oldest message is {_short(age)} old."
    return _slow(subscription, delivering.readers, figures)


def _is_backlog_old(shards: Sequence[ShardLag], now: datetime) -> bool:
    """Whether messages that were never handed out have been waiting for longer than is normal."""
    waiting = [shard.oldest_unclaimed for shard in shards if shard.oldest_unclaimed is not None]
    return any(now - publish_time >= SLOW_AFTER for publish_time in waiting)


def _retried(retrying: int, tries: int) -> str:
    if retrying:
        return f"{retrying} have failed, up to {tries} times, and are tried again later; others are delivered."
    return f"What failed before is tried again just now, up to attempt {tries}; others are delivered."


def _longest_failing(state: PushState | None) -> str:
    """A sentence about the message that has failed longest although the endpoint works, if one was reported."""
    if state is None or not state.failing_messages:
        return ""
    message = state.failing_messages[0]
    since = format_timestamp(message.since)
    return f" Message {message.message_id} since {since}: {describe_failing_message(message)}."


def _slow(subscription: Subscription, readers: int, figures: str) -> tuple[HeldBy, str]:
    if subscription.is_push:
        return HeldBy.SLOW_ENDPOINT, f"The endpoint cannot keep up: {figures}"
    if not readers:
        return HeldBy.SLOW_CONSUMERS, f"Nobody pulls or streams just now: {figures}"
    return HeldBy.SLOW_CONSUMERS, f"Those who pull or stream ({readers}) cannot keep up: {figures}"


def endpoint_verdict(state: PushState | None, now: datetime) -> tuple[HeldBy, str] | None:
    """What stops pushes, and the same as a sentence; None if nothing does."""
    if state is None:
        return None
    state = state.as_of(now)
    if state.paused_reason:
        return HeldBy.PAUSED, f"Pushing is paused: {state.paused_reason}"
    if state.is_failing(now):
        return HeldBy.ENDPOINT_FAILING, describe_failing_endpoint(state)
    if state.waits_since is not None:
        return HeldBy.WAITS_FOR_SLOTS, (
            f"It waits since {format_timestamp(state.waits_since)} for slots of pushes that others hold."
        )
    return None


def _paused(pause: Pause, *, is_push: bool) -> str:
    since = f" since {format_timestamp(pause.since)}" if pause.since is not None else ""
    by = f", by {pause.by}" if pause.by else ""
    return f"{'Pushing' if is_push else 'It'} is paused{since}{by}: {pause.reason}"


def _idle(shards: Sequence[ShardLag], readers: int, now: datetime) -> tuple[HeldBy, str] | None:
    used = max((shard.last_active_at for shard in shards), default=now)
    if readers or now - used < IDLE_AFTER:
        return None
    return HeldBy.NOBODY_PULLS, f"Nobody has pulled since {format_timestamp(used)}."


def _stuck(holder: KeyHolder, held: int) -> str:
    key, times = holder.ordering_key[:100], holder.attempt_number
    since = format_timestamp(holder.delivered_at)
    out = "is out since" if holder.is_out else "failed and was last handed out at"
    return (
        f"Ordering key {key!r}: message {holder.message_id} {out} {since} (attempt {times}), "
        f"and {held} later messages wait for their keys."
    )


def _short(age: timedelta) -> str:
    return format_duration(timedelta(seconds=max(round(age.total_seconds()), 0)))
