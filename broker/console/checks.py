"""The checks of the overview: each reads answers of the API, and finds what needs attention.

A finding is a sentence about a resource with one link.  Sentences that the API has are shown as they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from broker.client.words import age, in_words, leaf
from broker.console.api import ApiError, Json
from broker.console.charts import value_of
from broker.console.formats import number, share
from broker.console.page import Block
from broker.console.prefix import PREFIX, address_of
from broker.console.rates import EXHAUSTED, amount, figure
from broker.console.states import State, of_subscription
from broker.model.durations import parse_duration
from broker.model.quota_names import PUBLISH

CRITICAL, WARNING = State("Critical", "critical"), State("Warning", "warning")
_PAUSED = State("Paused", "paused")
AGE = "oldestUndeliveredMessageAge"
RECENT = timedelta(hours=1)
NEAR_LIMIT = 0.8  # of a quota, or of a retention
MOST_EXPIRED = 0.1  # of the messages that are delivered
FEW_DELIVERIES = 50  # in the last hour; with fewer the share is not judged
MOST_NAMED = 3  # resources in a sentence
OVER_AFTER = timedelta(minutes=2)  # without another refusal, or another ack deadline that passed
_BROKER = f"{PREFIX}broker"
PUBLISH_QUOTAS = (*PUBLISH, "retainedBytes")
_NEEDS_ATTENTION = ("critical", "warning", "paused")


class Finding(NamedTuple):
    """A sentence about what needs attention, with one link.  `name`: of the resource, or of the broker's check."""

    state: State
    name: str
    sentence: str
    link: str
    action: str


class Check(NamedTuple):
    """`title`: what was checked.  `refusal`: why the call was refused (None: it was not)."""

    title: str
    findings: Sequence[Finding]
    refusal: ApiError | None = None


def rank(finding: Finding) -> tuple[int, bool]:
    """Return where a finding is in the list: the worst first, and what is of the project before the broker's."""
    return finding.state.rank, finding.link == _BROKER


def check(title: str, block: Block, findings: Iterable[Finding]) -> Check:
    """Return a check with the findings in the answer of a call, or with its refusal."""
    return Check(title, [] if block.error is not None else list(findings), block.error)


def sentence_of(finding: Json) -> str:
    """Return the sentence of a finding of the broker without the name of its check, which pages show beside it."""
    sentence = finding["sentence"].removeprefix(f"{finding['check']}: ")
    return f"{sentence[:1].upper()}{sentence[1:]}"


def of_broker(findings: Block) -> Iterable[Finding]:
    """Findings of the broker about its database, its processes and its storage."""
    for one in findings.list("findings"):
        if one["severity"] in ("ERROR", "WARNING"):
            state = CRITICAL if one["severity"] == "ERROR" else WARNING
            then = f" Next: {one['nextStep']}." if "nextStep" in one else ""
            yield Finding(state, one["check"], f"{sentence_of(one)}{then}", _BROKER, "View broker")


def of_deliveries(lag: Block) -> Iterable[Finding]:
    """Subscriptions whose delivery state or warnings need attention."""
    for one in lag.list("subscriptions"):
        name, state = one["subscription"], of_subscription(one["deliveryState"])
        link = address_of(name)
        if state.level in _NEEDS_ATTENTION:
            yield Finding(state, name, _delivery(one), *_action(one, link))
        for sentence in one.get("warnings", ()):
            yield Finding(WARNING, name, sentence, link, "View subscription")


def refusals(refused: Block) -> Mapping[str, int]:
    """Return how many publish requests were refused, by code, the most first."""
    counts = _totals((series["metric"]["labels"].get("code"), series) for series in refused.list("timeSeries"))
    return {code: count for code, count in counts.items() if code != "OK"}


def of_refused_publishes(
    project: str, refused: Block, by_topic: Block, quotas: Block, now: datetime
) -> Iterable[Finding]:
    """Publishes that were refused, by code.  `by_topic`: those with the most frequent code, of each topic."""
    codes = refusals(refused)
    if not codes:
        return
    count, most = sum(codes.values()), next(iter(codes))
    of_topics = _by_resource(by_topic, "topic_id")
    ended = _ended([one for one in refused.list("timeSeries") if one["metric"]["labels"].get("code") in codes], now)
    requests = "1 publish request was" if count == 1 else f"{number(count)} publish requests were"
    to = f", {_shares(of_topics, codes[most])}" if of_topics else ""
    because = f", {number(codes[most])} of them with {most}" if len(codes) > 1 else f" with {most}"
    limits = _publish_limits(quotas) if most == EXHAUSTED else ""
    then = f"None has been since {ended}." if ended else _ADVICE.get(most, "")
    sentence = " ".join(filter(None, [f"{requests} refused in the last hour{because}{to}.", limits, then]))
    page = "quotas" if most == EXHAUSTED else "topics"
    name = f"{project}/topics/{next(iter(of_topics))}" if len(of_topics) == 1 else project
    state = WARNING if ended else CRITICAL
    yield Finding(state, name, sentence, f"{address_of(project)}/{page}", f"View {page}")


def _publish_limits(quotas: Block) -> str:
    """Describe the quotas that publishes of the project are measured by."""
    units = {one["quota"]: one["unit"] for one in quotas.list("quotas") if one["quota"] in PUBLISH_QUOTAS}
    limits = {one["quota"]: one.get("limit", -1) for one in quotas.list("quotas")}
    of_each = quotas.answer.get("principalLimits", {})
    found = [
        f"{name} allows{whom} {amount(given[name], unit)}"
        for given, whom in ((limits, ""), (of_each, " each principal"))
        for name, unit in units.items()
        if given.get(name, -1) >= 0
    ]
    return f"Quota: {', '.join(found)}." if found else ""


def _by_resource(block: Block, label: str) -> Mapping[str, int]:
    """Return what a metric has counted of each resource, by its id, the most first."""
    return _totals((series["resource"]["labels"].get(label), series) for series in block.list("timeSeries"))


def _totals(labelled: Iterable[tuple[str | None, Json]]) -> Mapping[str, int]:
    """Return what the time series of each label have counted, if anything, the most first."""
    counts: dict[str, int] = {}
    for label, series in labelled:
        if label and (count := _total(series)):
            counts[label] = counts.get(label, 0) + count
    return dict(sorted(counts.items(), key=lambda each: -each[1]))


def _shares(of_each: Mapping[str, int], all_: int) -> str:
    """Describe how a count is divided among resources, of which at most MOST_NAMED are named."""
    if len(of_each) == 1 and all_ <= next(iter(of_each.values())):
        return f"all to {next(iter(of_each))}"
    *others, last = [f"{number(count)} to {id_}" for id_, count in list(of_each.items())[:MOST_NAMED]]
    return f"{', '.join(others)} and {last}" if others else last


def _ended(series: Iterable[Json], now: datetime) -> str:
    """Return the end of the last period in which something was counted; "" if it has not been over for long."""
    last = max(
        (point["interval"]["endTime"] for one in series for point in one["points"] if _count(point)), default=""
    )
    return last if last and datetime.fromisoformat(last) < now - OVER_AFTER else ""


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


def of_retention(lag: Block) -> Iterable[Finding]:
    """Messages that will be deleted soon although nobody has acknowledged them."""
    for one in lag.list("subscriptions"):
        if AGE in one:
            oldest = parse_duration(one[AGE], AGE)
            retention = parse_duration(one["messageRetentionDuration"], "messageRetentionDuration")
            if oldest >= retention * NEAR_LIMIT:
                left = age(max((retention - oldest).total_seconds(), 0))
                yield Finding(
                    CRITICAL,
                    one["subscription"],
                    f"Its oldest message is deleted in {left}, unacknowledged: it retains messages for "
                    f"{age(retention.total_seconds())}. Deliver them, or extend the retention.",
                    address_of(one["subscription"]),
                    "View subscription",
                )


def are_late(expired: Block, sent: Block) -> bool:
    """Return whether so many ack deadlines have passed that it is worth a warning."""
    late, all_ = total(expired), total(sent)
    return all_ >= FEW_DELIVERIES and late > all_ * MOST_EXPIRED


def of_ack_deadlines(
    project: str, expired: Block, sent: Block, by_subscription: Block, now: datetime
) -> Iterable[Finding]:
    """Messages that are delivered again because they were not acknowledged in time.

    `by_subscription`: how many, of each subscription.
    """
    if not are_late(expired, sent):
        return
    late, of_each = total(expired), _by_resource(by_subscription, "subscription_id")
    ended = _ended(expired.list("timeSeries"), now)
    worst = next(iter(of_each), "")
    whose = f", {number(of_each[worst])} of the {number(late)} of {worst}" if worst else ""
    then = (
        f"None has been since {ended}."
        if ended
        else "They are delivered again. Extend the deadline, or acknowledge sooner."
    )
    name = f"{project}/subscriptions/{worst}" if worst else project
    yield Finding(
        WARNING,
        name,
        f"{share(late, total(sent))} of the messages that were delivered in the last hour passed their ack "
        f"deadline{whose}. {then}",
        address_of(name) if worst else f"{address_of(project)}/subscriptions",
        "View subscription" if worst else "View subscriptions",
    )


def of_operations(operations: Block, now: datetime) -> Iterable[Finding]:
    """Operations that failed within a day."""
    for one in operations.list("operations"):
        about = one["metadata"]
        ended = about.get("endTime", about["createTime"])
        if about["state"] == "FAILED" and datetime.fromisoformat(ended) >= now - timedelta(days=1):
            what = f"The {in_words(about['verb'])} of {leaf(about['target'])}"
            why = one.get("error", {}).get("message", "")
            yield Finding(
                WARNING,
                one["name"],
                f"{what} failed at {ended}{f': {why}' if why else '.'}",
                address_of(one["name"]),
                "View operation",
            )


def of_schedules(schedules: Block, now: datetime) -> Iterable[Finding]:
    """Schedules that are paused, or whose last tick published nothing, or is overdue."""
    for one in schedules.list("schedules"):
        outcome, due = one.get("lastOutcome", ""), one.get("nextTime", "")
        if one["state"] == "PAUSED":
            since = f" at {one['pauseTime']}" if "pauseTime" in one else ""
            by = f" by {one['pausedBy']}" if "pausedBy" in one else ""
            sentence = f"It was paused{since}{by}, and publishes nothing until it is resumed."
            yield Finding(_PAUSED, one["name"], sentence, address_of(one["name"]), "View schedule")
            continue
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
            used, most = (figure(value, one["unit"]) for value in (usage, limit))
            sentence = f"{share(usage, limit)} of {one['quota']} are used: {used} of {most}. "
            sentence += "More is refused." if usage >= limit else "At the limit more is refused."
            state = CRITICAL if usage >= limit else WARNING
            yield Finding(state, project, sentence, f"{address_of(project)}/quotas", "View quotas")


_TICKS: Mapping[str, str] = {
    "REFUSED": "was refused by its topic, and published nothing",
    "MISSED": "was missed while no broker ran",
}
_ADVICE: Mapping[str, str] = {
    EXHAUSTED: "Slow the publishers down, or raise the quota.",
    "NOT_FOUND": "Their topic does not exist.",
    "PERMISSION_DENIED": "Their callers may not publish.",
    "FAILED_PRECONDITION": "Their topic is frozen, or storage is short.",
    "INVALID_ARGUMENT": "Their messages break a rule or a schema.",
    "UNAUTHENTICATED": "Their callers show no valid credential.",
}


def _delivery(one: Json) -> str:
    """Return the verdict about a subscription, with the time in which it catches up at its present pace."""
    verdict: str = one["verdict"]
    in_, out = one.get("incomingMessagesPerSecond"), one.get("outgoingMessagesPerSecond")
    if in_ is None or out is None or one["deliveryState"] not in ("SLOW_CONSUMERS", "SLOW_ENDPOINT"):
        return verdict
    if not out:
        came = f", while {in_:.3g} messages a second came in" if in_ else ""
        return f"{verdict} None was acknowledged between the last two samples{came}."
    if out < in_:
        return f"{verdict} It falls further behind: {in_:.3g} a second come in, {out:.3g} are acknowledged."
    if out == in_:
        return f"{verdict} It does not catch up: as many are acknowledged as come in, {out:.3g} a second."
    waiting = one.get("undeliveredMessages", 0)
    return f"{verdict} At the present pace it has caught up in {age(waiting / (out - in_))}."


def _action(one: Json, link: str) -> tuple[str, str]:
    if "blockedKey" in one:
        project = one["subscription"].partition("/subscriptions/")[0]
        return address_of(f"{project}/messages/{one['blockedKey']['messageId']}"), "View message"
    if "endpointFailure" in one:
        return f"{link}#push", "View responses"
    return link, "View subscription"


def _total(series: Json) -> int:
    return sum(map(_count, series["points"]))


def _count(point: Json) -> int:
    return int(value_of(point))


def total(block: Block) -> int:
    """Return what a metric has counted within its interval."""
    return sum(map(_total, block.list("timeSeries")))
