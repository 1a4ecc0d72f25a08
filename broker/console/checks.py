"""The checks of the overview: each reads answers of the API, and finds what needs attention.

A finding is a sentence about a resource with one link.  Sentences that the API has are shown as they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from broker.client.words import age_of, leaf, size
from broker.console.api import ApiError, Json
from broker.console.formats import number, share
from broker.console.page import Block
from broker.console.prefix import PREFIX, address_of
from broker.console.states import State, of_subscription
from broker.model.durations import parse_duration

CRITICAL, WARNING = State("Critical", "critical"), State("Warning", "warning")
AGE = "oldestUndeliveredMessageAge"
RECENT = timedelta(hours=1)
NEAR_LIMIT = 0.8  # of a quota, or of a retention
MOST_EXPIRED = 0.1  # of the messages that are delivered
FEW_DELIVERIES = 50  # in RECENT, of which no share is judged
_NEEDS_ATTENTION = ("critical", "warning", "paused")


class Finding(NamedTuple):
    """A sentence about what needs attention, with one link.  `name`: of the resource, or what the check is of."""

    state: State
    name: str
    sentence: str
    link: str
    action: str


class Check(NamedTuple):
    """`title`: what was checked.  `refusal`: why it was not."""

    title: str
    findings: Sequence[Finding]
    refusal: ApiError | None = None


def check(title: str, block: Block, findings: Iterable[Finding]) -> Check:
    """Return a check of what a call has answered."""
    return Check(title, [] if block.error is not None else list(findings), block.error)


def of_broker(findings: Block) -> Iterable[Finding]:
    """Returns the findings of the broker about its database, its processes and its storage."""
    for one in findings.list("findings"):
        if one["severity"] in ("ERROR", "WARNING"):
            state = CRITICAL if one["severity"] == "ERROR" else WARNING
            then = f" Next: {one['nextStep']}." if "nextStep" in one else ""
            sentence = one["sentence"].removeprefix(f"{one['check']}: ")
            yield Finding(state, one["check"], f"{_capital(sentence)}{then}", f"{PREFIX}broker", "View broker")


def of_deliveries(lag: Block) -> Iterable[Finding]:
    """Returns a finding for each subscription whose delivery state, or whose warnings, need attention."""
    for one in lag.list("subscriptions"):
        name, state = one["subscription"], of_subscription(one["deliveryState"])
        link = address_of(name)
        if state.level in _NEEDS_ATTENTION:
            yield Finding(state, name, _delivery(one), *_action(one, link))
        for sentence in one.get("warnings", ()):
            yield Finding(WARNING, name, sentence, link, "View subscription")


def of_refused_publishes(project: str, refused: Block) -> Iterable[Finding]:
    """Publishes that were refused, by code."""
    codes = {
        series["metric"]["labels"]["code"]: _total(series)
        for series in refused.list("timeSeries")
        if series["metric"]["labels"].get("code") not in (None, "OK")
    }
    codes = {code: count for code, count in codes.items() if count}
    if codes:
        all_ = sum(codes.values())
        most = max(codes, key=lambda code: codes[code])
        because = f", {number(codes[most])} of them with {most}" if len(codes) > 1 else f" with {most}"
        requests = "1 publish request was" if all_ == 1 else f"{number(all_)} publish requests were"
        sentence = f"{requests} refused in the last hour{because}. {_ADVICE.get(most, '')}".rstrip()
        page = "quotas" if most == "RESOURCE_EXHAUSTED" else "topics"
        yield Finding(CRITICAL, project, sentence, f"{address_of(project)}/{page}", f"View {page}")


def of_frozen_topics(topics: Block) -> Iterable[Finding]:
    """Topics that refuse publishes because somebody has frozen them."""
    for one in topics.list("topics"):
        frozen = one.get("frozen")
        if frozen is not None:
            by = f" by {frozen['frozenBy']}" if "frozenBy" in frozen else ""
            why = f": {frozen['reason'].rstrip('.')}" if frozen["reason"] else ""
            yield Finding(
                CRITICAL,
                one["name"],
                f"It is frozen{by} and refuses publishes{why}. It takes them again after broker topic unfreeze.",
                address_of(one["name"]),
                "View topic",
            )


def of_dead_letters(project: str, groups: Block, now: datetime) -> Iterable[Finding]:
    """Subscriptions with dead letters of the last hour, with their most common cause."""
    recent: dict[str, list[Json]] = {}
    for one in groups.list("groups"):
        if datetime.fromisoformat(one["newestTime"]) >= now - RECENT:
            recent.setdefault(one["key"]["sourceSubscription"], []).append(one)
    for subscription, of_it in recent.items():
        all_ = sum(int(one["count"]) for one in of_it)
        worst = max(of_it, key=lambda one: int(one["count"]))
        since = min(one["oldestTime"] for one in of_it)
        cause = worst.get("response") or worst.get("reason", "")
        letters = "1 dead letter" if all_ == 1 else f"{number(all_)} dead letters"
        mostly = f", {'all' if len(of_it) == 1 else 'most'} with the cause {cause}" if cause else ""
        yield Finding(
            CRITICAL,
            subscription,
            f"{letters} since {since}, the last at {max(one['newestTime'] for one in of_it)}{mostly}. "
            "Redrive them once the cause is gone.",
            f"{address_of(subscription if '/subscriptions/' in subscription else project)}/deadLetters",
            "View dead letters",
        )


def of_retention(lag: Block, subscriptions: Block) -> Iterable[Finding]:
    """Messages that will be deleted soon although nobody has acknowledged them."""
    retained = {
        one["name"]: parse_duration(one["messageRetentionDuration"], "messageRetentionDuration")
        for one in subscriptions.list("subscriptions")
        if "messageRetentionDuration" in one
    }
    for one in lag.list("subscriptions"):
        retention = retained.get(one["subscription"])
        if AGE in one and retention:
            age = parse_duration(one[AGE], AGE)
            if age >= retention * NEAR_LIMIT:
                left = age_of(f"{max((retention - age).total_seconds(), 0)}s")
                yield Finding(
                    CRITICAL,
                    one["subscription"],
                    f"Its oldest message is deleted in {left}, unacknowledged: it retains messages for "
                    f"{age_of(f'{retention.total_seconds()}s')}. Deliver them, or extend the retention.",
                    address_of(one["subscription"]),
                    "View subscription",
                )


def of_ack_deadlines(project: str, expired: Block, sent: Block) -> Iterable[Finding]:
    """Messages that are delivered again because they were not acknowledged in time."""
    late, all_ = total(expired), total(sent)
    if all_ >= FEW_DELIVERIES and late > all_ * MOST_EXPIRED:
        yield Finding(
            WARNING,
            project,
            f"{share(late, all_)} of the messages that were delivered in the last hour passed their ack deadline, "
            "and are delivered again. Extend the deadline, or acknowledge sooner.",
            f"{address_of(project)}/subscriptions",
            "View subscriptions",
        )


def of_operations(operations: Block, now: datetime) -> Iterable[Finding]:
    """Operations that failed within a day."""
    for one in operations.list("operations"):
        about = one["metadata"]
        ended = about.get("endTime", about["createTime"])
        if about["state"] == "FAILED" and datetime.fromisoformat(ended) >= now - timedelta(days=1):
            why = one.get("error", {}).get("message", "")
            yield Finding(
                WARNING,
                one["name"],
                f"The {about['verb']} of {leaf(about['target'])} failed at {ended}{f': {why}' if why else '.'}",
                address_of(one["name"]),
                "View operation",
            )


def of_schedules(schedules: Block, now: datetime) -> Iterable[Finding]:
    """Schedules whose last tick published nothing, or is overdue."""
    for one in schedules.list("schedules"):
        outcome, due = one.get("lastOutcome", ""), one.get("nextTime", "")
        if outcome in _TICKS:
            sentence = f"Its last tick {_TICKS[outcome]}."
        elif one["state"] == "ACTIVE" and due and datetime.fromisoformat(due) < now - timedelta(minutes=1):
            sentence = f"Its tick of {due} has not happened. Check that a broker process runs its jobs."
        else:
            continue
        yield Finding(WARNING, one["name"], sentence, address_of(one["name"]), "View schedule")


def of_quotas(project: str, quotas: Block) -> Iterable[Finding]:
    """Quotas that are used up, or nearly."""
    for one in quotas.list("quotas"):
        limit, usage = one.get("limit", -1), one["usage"]
        if limit > 0 and usage >= limit * NEAR_LIMIT:
            used, most = (_amount(value, one["unit"]) for value in (usage, limit))
            sentence = f"{share(usage, limit)} of {one['quota']} are used: {used} of {most}. "
            sentence += "More is refused." if usage >= limit else "At the limit more is refused."
            state = CRITICAL if usage >= limit else WARNING
            yield Finding(state, project, sentence, f"{address_of(project)}/quotas", "View quotas")


_TICKS: Mapping[str, str] = {
    "REFUSED": "was refused by its topic, and published nothing",
    "MISSED": "was missed while no broker ran",
}
_ADVICE: Mapping[str, str] = {
    "RESOURCE_EXHAUSTED": "Slow the publishers down, or raise the quota.",
    "NOT_FOUND": "Their topic does not exist.",
    "PERMISSION_DENIED": "Their callers may not publish.",
    "FAILED_PRECONDITION": "Their topic is frozen, or storage is short.",
    "INVALID_ARGUMENT": "Their messages break a rule or a schema.",
    "UNAUTHENTICATED": "Their callers show no valid credential.",
}


def _delivery(one: Json) -> str:
    """The verdict about a subscription, with the time in which it catches up at its present pace."""
    verdict: str = one["verdict"]
    in_, out = one.get("incomingMessagesPerSecond"), one.get("outgoingMessagesPerSecond")
    if in_ is None or out is None or one["deliveryState"] not in ("SLOW_CONSUMERS", "SLOW_ENDPOINT"):
        return verdict
    if out <= in_:
        return f"{verdict} It falls further behind: {in_:.3g} a second come in, {out:.3g} are acknowledged."
    waiting = one.get("undeliveredMessages", 0)
    return f"{verdict} At the present pace it has caught up in {age_of(f'{waiting / (out - in_)}s')}."


def _action(one: Json, link: str) -> tuple[str, str]:
    if "blockedKey" in one:
        project = one["subscription"].partition("/subscriptions/")[0]
        return address_of(f"{project}/messages/{one['blockedKey']['messageId']}"), "View message"
    if "endpointFailure" in one:
        return f"{link}#push", "View responses"
    return link, "View subscription"


def _total(series: Json) -> int:
    return sum(int(float(next(iter(point["value"].values())))) for point in series["points"])


def total(block: Block) -> int:
    """Return what a metric has counted within its interval."""
    return sum(map(_total, block.list("timeSeries")))


def _amount(value: float, unit: str) -> str:
    return size(value) if unit.startswith("bytes") else f"{value:,.0f}"


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
