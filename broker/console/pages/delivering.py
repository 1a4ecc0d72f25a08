"""How a subscription delivers: its endpoint or its clients, and the ordering keys that wait for a message."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from broker.console import formats
from broker.console.api import Json
from broker.console.page import Block, View
from broker.console.states import State, of_message, of_push
from broker.model.durations import parse_duration
from broker.model.push_history import LATE
from broker.model.timestamps import format_timestamp

MOST_FAILURES = 10
MOST_CHANGES = 8
MOST_KEYS = 20
READ_FOR_KEYS = 500  # messages
ATTEMPTS_SINCE = timedelta(hours=1)
MOST_ATTEMPTS = 300  # rows: one for each minute and status
_BREAKERS = {
    "OPEN": State("Open", "critical"),
    "HALF_OPEN": State("Half-open", "warning"),
    "CLOSED": State("Closed", "ok"),
}


class Endpoint(NamedTuple):
    """The state and the history of a push endpoint."""

    status: Block
    failures: Block
    attempts: Block
    by_status: Sequence["Outcome"]
    changes: Sequence["Change"]
    is_push: bool = True


class Outcome(NamedTuple):
    """The requests that ended with one status."""

    status: str
    state: State
    requests: int
    share: str
    latency: str
    last: Json


class Change(NamedTuple):
    """A change of a circuit breaker.  `probes`: how often it let a request pass since, which failed."""

    state: State
    time: str
    status: str
    reason: str
    probes: int


class Clients(NamedTuple):
    """The clients that pull and stream."""

    consumers: Block
    is_push: bool = False


class StuckKeys(NamedTuple):
    """`keys`: those with the most messages that wait, of the first READ_FOR_KEYS messages."""

    read: Block
    keys: Sequence["StuckKey"]
    is_cut: bool


class StuckKey(NamedTuple):
    """An ordering key whose messages wait for one of them.

    `holder`: the message for which the others wait, with its state (None: it was not read).
    """

    key: str
    message_id: str
    waiting: int
    since: str
    holder: Json | None
    state: State | None


async def endpoint(view: View, name: str) -> Endpoint:
    since = format_timestamp(view.now - ATTEMPTS_SINCE)
    status, failures, attempts = await asyncio.gather(
        view.block(f"{name}:pushStatus"),
        view.block(f"{name}:pushFailures", pageSize=MOST_FAILURES),
        view.block(f"{name}:pushAttempts", since=since, pageSize=MOST_ATTEMPTS),
    )
    breaker = status.answer.get("circuitBreaker", {})
    return Endpoint(
        status, failures, attempts, by_status(attempts.list("pushAttempts")), changes(breaker.get("history", ()))
    )


async def clients(view: View, name: str) -> Clients:
    return Clients(await view.block(f"{name}/consumers"))


async def stuck_keys(view: View, name: str) -> StuckKeys:
    read = await view.block(
        f"{name}/messages",
        state="BLOCKED,OUTSTANDING,RETRYING,EXHAUSTED",
        pageSize=READ_FOR_KEYS,
        previewBytes="0",
    )
    keys = stuck_keys_of(read.list("messages"))
    return StuckKeys(read, keys[:MOST_KEYS], "nextPageToken" in read.answer or len(keys) > MOST_KEYS)


def stuck_keys_of(messages: Iterable[Json]) -> list[StuckKey]:
    """Return the keys that wait, those with the most messages first."""
    messages = list(messages)
    by_id = {one["message"]["messageId"]: one for one in messages if one["state"] != "BLOCKED"}
    waiting: dict[tuple[str, str], list[Json]] = {}
    for one in messages:
        if "blockedByMessageId" in one:
            held = one["message"].get("orderingKey", ""), one["blockedByMessageId"]
            waiting.setdefault(held, []).append(one)
    found = []
    for (key, message_id), blocked in waiting.items():
        holder = by_id.get(message_id)
        since = min(one["message"]["publishTime"] for one in blocked)
        state = None if holder is None else of_message(holder["state"])
        found.append(StuckKey(key, message_id, len(blocked), since, holder, state))
    return sorted(found, key=lambda each: (-each.waiting, each.since))


def by_status(attempts: Sequence[Json]) -> list[Outcome]:
    """Return the requests of all minutes by status, the most first.  `attempts`: the newest first."""
    rows: dict[tuple[str, str], list[Json]] = {}
    for one in attempts:
        rows.setdefault((one["outcome"], one["status"]), []).append(one)
    total = sum(int(one["requests"]) for one in attempts if one["status"] != LATE)  # those are timeouts, too
    outcomes = []
    for (outcome, status), group in rows.items():
        requests = sum(int(one["requests"]) for one in group)
        seconds = sum(
            parse_duration(one["averageLatency"], "averageLatency").total_seconds() * int(one["requests"])
            for one in group
        )
        latency = formats.latency(f"{seconds / max(requests, 1)}s")
        outcomes.append(
            Outcome(status, of_push(outcome, status), requests, formats.share(requests, total), latency, group[0])
        )
    return sorted(outcomes, key=lambda each: -each.requests)


def changes(history: Sequence[Json]) -> list[Change]:
    """Return the changes of a breaker, the newest first; `history` is in that order.

    A breaker that is open lets a request pass now and then, and is open again if it fails.  Those changes are
    counted in place of being listed.
    """
    found: list[Change] = []
    probes = 0
    for index, one in enumerate(history):
        before = history[index + 1]["state"] if index + 1 < len(history) else ""
        if one["state"] == "HALF_OPEN" and index:
            continue
        if one["state"] == "OPEN" and before == "HALF_OPEN":
            probes += 1
            if any(each["state"] != "HALF_OPEN" for each in history[index + 1 :]):
                continue
        found.append(
            Change(
                _BREAKERS[one["state"]],
                one["changeTime"],
                str(one.get("status", "")),
                one.get("reason", ""),
                probes if one["state"] == "OPEN" else 0,
            )
        )
        probes = 0
    return found[:MOST_CHANGES]
