"""Actions on subscriptions and on their deliveries."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker.client.words import counted, duration_text, whole_seconds
from broker.console.actions import reading
from broker.console.actions.action import Action, Call, Field, Json, Note, Receipt, Target, Values, Weight
from broker.console.actions.common import (
    FILTER,
    LABELS,
    PROJECT,
    RATE,
    REASON,
    SUBSCRIPTION,
    asking_itself,
    chosen,
    command,
    created,
    deleting,
    done,
    encoded,
    full_name,
    in_project,
    operation,
    outcomes,
    patching,
    posting,
    since,
)
from broker.console.page import Block

_ENDPOINT = Field(name="pushEndpoint", label="Endpoint", placeholder="https://example.com/hook")
_ACK_DEADLINE = Field(
    name="ackDeadlineSeconds",
    label="Ack deadline",
    read=whole_seconds,
    placeholder="30s",
    help="10 to 600 seconds.",
)
_RETENTION = Field(
    name="messageRetentionDuration",
    label="Retention",
    read=duration_text,
    placeholder="7d",
    help="How long messages that nobody acknowledges are kept: 10 minutes to 31 days.",
)
_DEAD_LETTER_TOPIC = Field(name="deadLetterTopic", label="Dead-letter topic", help="Empty: none.")
_MAX_ATTEMPTS = Field(
    name="maxDeliveryAttempts", label="Delivery attempts before that", read=reading.whole_number, help="5 to 100."
)
_MIN_BACKOFF = Field(
    name="minimumBackoff",
    label="Shortest wait before a redelivery",
    read=duration_text,
    placeholder="10s",
    help="Of messages that were not acknowledged. Empty in both: they are delivered again at once.",
)
_MAX_BACKOFF = Field(
    name="maximumBackoff",
    label="Longest wait before a redelivery",
    read=duration_text,
    placeholder="10m",
    help="The wait doubles with each attempt. 0 to 600 seconds.",
)
_UNDOABLE = Field(name="undoable", label="Can be undone for an hour", kind="check", default="on")
_SINCE = Field(name="startTime", label="Since", kind="time", required=True, placeholder="1h")


def _dead_letter_policy(target: Target, values: Values) -> Json:
    if _DEAD_LETTER_TOPIC.name not in values:
        return {}
    policy = {_DEAD_LETTER_TOPIC.name: full_name(target, "topics", values[_DEAD_LETTER_TOPIC.name])}
    return {"deadLetterPolicy": policy | chosen(values, _MAX_ATTEMPTS.name)}


def _create(target: Target, values: Values) -> Call:
    body = {
        "topic": full_name(target, "topics", values["topic"]),
        **chosen(values, _ACK_DEADLINE.name, "filter", "labels"),
    }
    if values.get("enableMessageOrdering"):
        body["enableMessageOrdering"] = True
    if _ENDPOINT.name in values:
        body["pushConfig"] = {_ENDPOINT.name: values[_ENDPOINT.name]}
    return Call("PUT", f"{target.project}/subscriptions/{values['id']}", body | _dead_letter_policy(target, values))


def _update(target: Target, values: Values) -> Call:
    make = patching(
        {
            _ACK_DEADLINE.name: lambda given: given.get(_ACK_DEADLINE.name),
            _RETENTION.name: lambda given: given.get(_RETENTION.name),
            "deadLetterPolicy": lambda given: _dead_letter_policy(target, given).get("deadLetterPolicy"),
            "retryPolicy": lambda given: chosen(given, _MIN_BACKOFF.name, _MAX_BACKOFF.name) or None,
            "labels": lambda given: given.get("labels", {}),
        },
        "subscription",
    )
    return make(target, values)


def _settings(subscription: Json) -> dict[str, str]:
    policy = subscription.get("deadLetterPolicy", {})
    return {
        _ACK_DEADLINE.name: str(subscription.get(_ACK_DEADLINE.name, "")),
        _RETENTION.name: subscription.get(_RETENTION.name, ""),
        _DEAD_LETTER_TOPIC.name: policy.get(_DEAD_LETTER_TOPIC.name, ""),
        _MAX_ATTEMPTS.name: str(policy.get(_MAX_ATTEMPTS.name, "")),
        _MIN_BACKOFF.name: subscription.get("retryPolicy", {}).get(_MIN_BACKOFF.name, ""),
        _MAX_BACKOFF.name: subscription.get("retryPolicy", {}).get(_MAX_BACKOFF.name, ""),
        "labels": reading.pair_lines(subscription.get("labels", {})),
    }


def _seek(target: Target, values: Values) -> Call:
    snapshot = full_name(target, "snapshots", values.get("snapshot", ""))
    to = {"snapshot": snapshot} if snapshot else chosen(values, "time")
    return Call("POST", f"{target.name}:seek", to | chosen(values, "undoable"))


def _sought(target: Target, _: Values, answer: Json) -> Receipt:
    again = int(answer.get("replayedMessages", 0))
    return Receipt(
        f"Moved {target.id}: {counted(again, 'message')} will be delivered again.",
        target.name,
        undo=f"{target.name}:undoSeek" if "undoUntil" in answer else "",
        undo_until=answer.get("undoUntil", ""),
    )


def _purged(target: Target, _: Values, answer: Json) -> Receipt:
    if "metadata" in answer:
        return Receipt(f"Purging {target.id}.", answer["name"])
    return Receipt(
        f"Purged {target.id}.",
        target.name,
        undo=f"{target.name}:undoSeek" if "undoUntil" in answer else "",
        undo_until=answer.get("undoUntil", ""),
    )


def _set_endpoint(target: Target, values: Values) -> Call:
    return Call("POST", f"{target.name}:modifyPushConfig", {"pushConfig": chosen(values, _ENDPOINT.name)})


def _test_push(target: Target, values: Values) -> Call:
    body = {"message": {"data": encoded(values["data"])}} if "data" in values else {}
    return Call("POST", f"{target.name}:testPush", body)


def _tested(target: Target, _: Values, answer: Json) -> Receipt:
    status, latency = answer.get("status"), answer.get("latency", "")
    said = f"answered {status}" if status else f"did not answer: {answer.get('detail', 'no reason is known')}"
    return Receipt(f"The endpoint {said}{f' within {latency}' if latency else ''}.", target.name)


def _snapshot(target: Target, values: Values) -> Call:
    body = {"subscription": target.name, **chosen(values, "labels")}
    return Call("PUT", f"{target.project}/snapshots/{values['id']}", body)


def _push_status(data: Mapping[str, Any]) -> Json | None:
    """Return the state of the endpoint that a page shows; None: nothing is pushed."""
    delivering = data.get("delivering")
    if delivering is not None:
        status: Json | None = delivering.status.answer if delivering.is_push else None
        return status
    status = data.get("status", {})
    return status if "circuitBreaker" in status else None


def _is_push(data: Mapping[str, Any]) -> bool:
    return _push_status(data) is not None


def _pushes_are_paused(data: Mapping[str, Any]) -> bool:
    return (_push_status(data) or {}).get("state") == "PAUSED"


def _status(target: Target, _: object) -> Call:
    return Call("GET", f"{target.name}:pushStatus")


def _since_it_failed(status: Json) -> dict[str, str]:
    """Fill in when the circuit breaker opened: the time after which pushes were not even tried."""
    breaker = status.get("circuitBreaker", {})
    opened = ""
    for change in breaker.get("history", ()):  # the newest first
        if change["state"] != "CLOSED":
            opened = change["changeTime"]
        elif opened:
            break
    return {_SINCE.name: opened} if opened else {}


def _resent(target: Target, _: Values, answer: Json) -> Receipt:
    return Receipt(outcomes(f"Messages to {target.id}", answer), target.name)


_MESSAGE_IDS = Field(name="messageIds", label="Message ids", kind="area", required=True, read=reading.ids)
_MOST_REPORTED = 10  # messages whose state a form shows
_HELD_WORDS = {
    "waiting": "left alone, because no consumer holds it: it is delivered when its turn comes",
    "outstanding": "left alone, because an earlier message of its ordering key is not acknowledged",
    "alreadySettled": "settled already",
}


def _states_asked(target: Target, values: Values) -> Mapping[str, Call]:
    ids = [one for one in values["messageIds"] if one.isascii() and one.isdigit()][:_MOST_REPORTED]
    return {one: Call("GET", f"{target.name}/messages/{one}") for one in ids}


def _states(_: Values, answers: Mapping[str, Block]) -> Sequence[Note]:
    """Return what is known of each message."""
    return [
        Note(f"{id_}: {answer.error.message if answer.error is not None else answer.answer.get('verdict', '')}")
        for id_, answer in answers.items()
    ]


def _held(target: Target, _: Values, answer: Json) -> Receipt:
    return Receipt(outcomes(f"Messages of {target.id}", answer, **_HELD_WORDS), target.name)


def _on_held(
    verb: str,
    rpc: str,
    command_verb: str,
    *,
    title: str,
    label: str,
    explanation: str,
    applies: Callable[[Mapping[str, Any]], bool] = lambda _: True,
) -> Action:
    """Make an action on messages of a subscription that are held or retried, whose form shows their states."""
    return Action(
        on=SUBSCRIPTION,
        verb=verb,
        rpc=rpc,
        permission="pubsub.subscriptions.consume",
        title=title,
        label=label,
        help=explanation,
        applies=applies,
        fields=[_MESSAGE_IDS],
        asks=_states_asked,
        notes=_states,
        call=posting(verb, "messageIds"),
        receipt=_held,
        command=command(f"sub {command_verb} {{target}} {{messageIds}}"),
    )


def _skip_asked(target: Target, _: Values) -> Mapping[str, Call]:
    return {"lag": Call("GET", f"{target.project}/lag", query={"fresh": "true", "filter": f"name={target.id}"})}


def _skip(_: Values, answers: Mapping[str, Block]) -> Sequence[Note]:
    """Say when messages were skipped that an undo brings back, and how many."""
    for one in answers["lag"].list("subscriptions"):
        if "lastSkip" in one:
            skip = one["lastSkip"]
            skipped = counted(skip["messages"], "message")
            return [Note(f"The {skip['cause'].lower()} at {skip['skipTime']} settled {skipped} unacknowledged.")]
    return [Note("No seek or purge that settled unacknowledged messages is known.")]


def _paused(_: Values, answers: Mapping[str, Block]) -> Sequence[Note]:
    found = answers["own"].answer
    pause = found if "pausedReason" in found else found.get("pause", {})
    return since("It has been paused", pause, time="pauseTime", by="pausedBy", reason="pausedReason")


RECOVER = Action(
    on=SUBSCRIPTION,
    verb="recover",
    rpc="RecoverPushes",
    permission="pubsub.subscriptions.consume",
    title="Recover failed pushes",
    label="Push {count} again",
    weight=Weight.BOUNDED,
    has_preview=True,
    applies=_is_push,
    help="Messages whose pushes have failed for good since the time are pushed again.",
    fields=[_SINCE, RATE],
    reads=_status,
    initial=_since_it_failed,
    shown_on=("", "/pushAttempts"),
    call=posting("recover", "startTime", RATE.name),
    receipt=operation("Recovering the pushes of {target}."),
    command=command("push recover {target}", startTime="since", maxMessagesPerSecond="rate"),
)
RESEND = Action(
    on=SUBSCRIPTION,
    verb="resend",
    rpc="ResendMessages",
    permission="pubsub.subscriptions.consume",
    title="Resend messages",
    label="Resend the messages",
    help="They are delivered once more, to this subscription alone, even if they were acknowledged.",
    fields=[_MESSAGE_IDS],
    call=posting("resend", "messageIds"),
    receipt=_resent,
    command=command("push resend {target} {messageIds}"),
)
ACTIONS: Sequence[Action] = [
    Action(
        on=PROJECT,
        verb="createSubscription",
        rpc="Subscriber.CreateSubscription",
        permission="pubsub.subscriptions.create",
        title="Create a subscription",
        shown_on=("", "/subscriptions", "/topics/{topic}"),
        label="Create the subscription",
        fields=[
            Field(name="id", label="Id", required=True, placeholder="billing"),
            Field(name="topic", label="Topic", required=True, placeholder="orders"),
            Field(
                name="pushEndpoint",
                label="Endpoint",
                placeholder="https://example.com/hook",
                help="Empty: clients pull.",
            ),
            _ACK_DEADLINE,
            FILTER,
            Field(name="enableMessageOrdering", label="In the order of keys", kind="check"),
            _DEAD_LETTER_TOPIC,
            _MAX_ATTEMPTS,
            LABELS,
        ],
        call=_create,
        receipt=created("subscription", "subscriptions"),
        command=command("sub create {id} --topic {topic}", pushEndpoint="push-endpoint", filter="filter"),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="seek",
        rpc="Subscriber.Seek",
        permission="pubsub.subscriptions.consume",
        title="Seek: replay or skip",
        label="Seek: {count}",
        weight=Weight.BOUNDED,
        has_preview=True,
        help="What was published before the time is acknowledged; what was published since is delivered again.",
        fields=[
            Field(
                name="time",
                label="To the time",
                kind="time",
                placeholder="1h",
                help="A time, now, or how long ago.",
            ),
            Field(name="snapshot", label="Or to the snapshot"),
            _UNDOABLE,
        ],
        call=_seek,
        receipt=_sought,
        command=command("seek {target} --yes", time="time", snapshot="snapshot", undoable="undoable"),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="undoSeek",
        rpc="UndoSeek",
        permission="pubsub.subscriptions.consume",
        title="Undo the last seek or purge",
        label="Undo it",
        help="Back to where it was before the newest seek or purge of the last hour that can be undone.",
        at_once=True,
        asks=_skip_asked,
        notes=_skip,
        call=posting("undoSeek"),
        receipt=_sought,
        command=command("seek {target} --undo --yes"),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="pause",
        rpc="PauseSubscription",
        permission="pubsub.subscriptions.update",
        title="Pause",
        applies=lambda data: "pause" not in data.get("subscription", {}),
        label="Pause the subscription",
        help="Nothing is delivered until it is resumed; nothing is lost.",
        fields=[REASON],
        call=posting("pause", "reason"),
        receipt=done("Paused {target}: nothing is delivered.", undo="resume"),
        command=command("sub pause {target}", reason="reason"),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="resume",
        rpc="ResumeSubscription",
        permission="pubsub.subscriptions.update",
        title="Resume",
        applies=lambda data: "pause" in data.get("subscription", {}),
        label="Resume the subscription",
        at_once=True,
        asks=asking_itself,
        notes=_paused,
        call=posting("resume"),
        receipt=done("Resumed {target}.", undo="pause"),
        command=command("sub resume {target}"),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="pausePush",
        rpc="PausePush",
        permission="pubsub.subscriptions.update",
        title="Pause pushes",
        label="Pause the pushes",
        fields=[REASON],
        applies=lambda data: _is_push(data) and not _pushes_are_paused(data),
        shown_on=("", "/pushAttempts"),
        call=posting("pausePush", "reason"),
        receipt=done("Paused the pushes of {target}.", undo="resumePush"),
        command=command("push pause {target}", reason="reason"),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="resumePush",
        rpc="ResumePush",
        permission="pubsub.subscriptions.update",
        title="Resume pushes",
        label="Resume the pushes",
        applies=_pushes_are_paused,
        shown_on=("", "/pushAttempts"),
        at_once=True,
        asks=lambda target, values: {"own": _status(target, values)},
        notes=_paused,
        call=posting("resumePush"),
        receipt=done("Resumed the pushes of {target}.", undo="pausePush"),
        command=command("push resume {target}"),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="testPush",
        rpc="TestPush",
        permission="pubsub.subscriptions.update",
        title="Send a test push",
        label="Send it",
        applies=_is_push,
        shown_on=("", "/pushAttempts"),
        at_once=True,
        help="One message that is not in the log, with the id 0; nothing is counted for or against the endpoint.",
        fields=[Field(name="data", label="Body", kind="area", help="Empty: a text of the broker's.")],
        call=_test_push,
        receipt=_tested,
        command=command("push test {target} {data}"),
    ),
    RECOVER,
    Action(
        on=SUBSCRIPTION,
        verb="replayMissing",
        rpc="ReplayMissingPushes",
        permission="pubsub.subscriptions.consume",
        title="Push to the new endpoint what it missed",
        label="Push {count}",
        weight=Weight.BOUNDED,
        has_preview=True,
        applies=_is_push,
        fields=[_SINCE, Field(name="endpointTime", label="The endpoint is new since", kind="time"), RATE],
        call=posting("replayMissing", "startTime", "endpointTime", RATE.name),
        receipt=operation("Pushing to the endpoint of {target} what it missed."),
        command=command(
            "push replay-missing {target}",
            startTime="since",
            endpointTime="endpoint-since",
            maxMessagesPerSecond="rate",
        ),
    ),
    RESEND,
    _on_held(
        "release",
        "ReleaseMessages",
        "release",
        title="Release held messages",
        label="Release the messages",
        explanation="They are taken from the consumers that hold them, and delivered again at once.",
    ),
    _on_held(
        "deadLetter",
        "DeadLetterMessages",
        "dead-letter",
        title="Dead-letter messages",
        label="Dead-letter the messages",
        explanation="Messages that are held or retried go to the dead-letter topic; a redrive brings them back.",
        applies=lambda data: "deadLetterPolicy" in data.get("subscription", {}),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="snapshot",
        rpc="Subscriber.CreateSnapshot",
        permission="pubsub.snapshots.create",
        title="Make a snapshot",
        label="Make the snapshot",
        help="It holds what is not acknowledged now, and all that comes later, for seven days at most.",
        fields=[Field(name="id", label="Id", required=True, placeholder="before-release"), LABELS],
        call=_snapshot,
        receipt=lambda target, values, _: Receipt(f"Made snapshot {values['id']}.", f"{target.project}/snapshots"),
        command=command("snapshot create {id} --sub {target}"),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="update",
        rpc="Subscriber.UpdateSubscription",
        permission="pubsub.subscriptions.update",
        title="Change the settings",
        label="Change the settings",
        fields=[
            _ACK_DEADLINE,
            _RETENTION,
            _MIN_BACKOFF,
            _MAX_BACKOFF,
            _DEAD_LETTER_TOPIC,
            _MAX_ATTEMPTS,
            LABELS,
        ],
        call=_update,
        initial=_settings,
        receipt=done("Changed the settings of {target}."),
        command=command(
            "sub update {target}",
            ackDeadlineSeconds="ack-deadline",
            messageRetentionDuration="retention",
            minimumBackoff="min-backoff",
            maximumBackoff="max-backoff",
            deadLetterTopic="dead-letter-topic",
            maxDeliveryAttempts="max-attempts",
            labels="label",
        ),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="setFilter",
        rpc="SetFilter",
        permission="pubsub.subscriptions.update",
        title="Change the filter",
        label="Change the filter",
        fields=[
            Field(
                name="filter",
                label="Filter",
                help="Empty: everything. It holds for messages published from now on.",
            )
        ],
        call=lambda target, values: Call("POST", f"{target.name}:setFilter", {"filter": values.get("filter", "")}),
        initial=lambda subscription: {"filter": subscription.get("filter", "")},
        receipt=done("Changed the filter of {target}."),
        command=command("sub set-filter {target} {filter}"),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="setEndpoint",
        rpc="Subscriber.ModifyPushConfig",
        permission="pubsub.subscriptions.update",
        title="Change the endpoint",
        label="Change the endpoint",
        help="Empty: clients pull. The other settings of pushes go back to their defaults.",
        fields=[_ENDPOINT],
        call=_set_endpoint,
        initial=lambda subscription: {_ENDPOINT.name: subscription.get("pushConfig", {}).get(_ENDPOINT.name, "")},
        receipt=done("Changed the endpoint of {target}."),
        command=command("push set-endpoint {target} {pushEndpoint}"),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="purge",
        rpc="PurgeSubscription",
        permission="pubsub.subscriptions.consume",
        title="Purge the backlog",
        label="Purge {count}",
        weight=Weight.LOSSY,
        has_preview=True,
        help="What is not acknowledged is acknowledged, without having been delivered.",
        fields=[
            Field(name="before", label="Published before", kind="time", placeholder="1h", help="Empty: all of it."),
            FILTER,
            _UNDOABLE,
        ],
        call=lambda target, values: Call(
            "POST",
            f"{target.name}:purge",
            chosen(values, "before", "filter") | ({} if "filter" in values else chosen(values, "undoable")),
        ),
        can_be_undone=lambda values: values.get("undoable") is True and "filter" not in values,
        receipt=_purged,
        command=command("purge {target} --yes", before="before", filter="filter", undoable="undoable"),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="detach",
        rpc="Publisher.DetachSubscription",
        permission="pubsub.topics.detachSubscription",
        title="Detach from the topic",
        label="Detach, dropping {count}",
        weight=Weight.LOSSY,
        has_preview=True,
        help="Its backlog is dropped, and it receives nothing more.",
        call=posting("detach"),
        receipt=done("Detached {target}."),
        command=command("sub detach {target} --yes"),
    ),
    Action(
        on=SUBSCRIPTION,
        verb="delete",
        rpc="Subscriber.DeleteSubscription",
        permission="pubsub.subscriptions.delete",
        title="Delete the subscription",
        label="Delete it, dropping {count}",
        weight=Weight.LOSSY,
        has_preview=True,
        help="Its backlog is dropped.",
        call=deleting,
        receipt=done("Deleted subscription {target}.", path=in_project("subscriptions")),
        command=command("sub delete {target} --yes"),
    ),
]
