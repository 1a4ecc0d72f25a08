"""Actions on topics."""

from base64 import b64decode
from collections.abc import Mapping, Sequence

from broker.client.words import duration_text
from broker.console.actions import reading
from broker.console.actions.action import Action, Call, Field, Json, Receipt, Target, Values, Weight
from broker.console.actions.common import (
    FILTER,
    LABELS,
    PROJECT,
    RATE,
    REASON,
    TOPIC,
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

_RETENTION = Field(
    name="messageRetentionDuration",
    label="Retention",
    read=duration_text,
    placeholder="7d",
    help="10 minutes to 31 days. Empty: as long as its subscriptions need the messages.",
)


def _create(target: Target, values: Values) -> Call:
    return Call("PUT", f"{target.project}/topics/{values['id']}", chosen(values, "labels", _RETENTION.name))


def _publish(target: Target, values: Values) -> Call:
    message = chosen(values, "orderingKey", "attributes") | {
        "data": values.get("base64") or encoded(values.get("data", ""))
    }
    return Call("POST", f"{target.name}:publish", {"messages": [message]})


def _template(target: Target, texts: Mapping[str, str]) -> Call | None:
    template = texts.get("template", "").strip()
    if not template or "/" in template:  # which is no id
        return None
    return Call("GET", f"{target.project}/messageTemplates/{template}")


def _of_template(template: Json) -> Mapping[str, str]:
    """Return what the form has of a template.  A body that is no text goes into the field for files."""
    data = template.get("data", "")
    try:
        body = {"data": b64decode(data).decode()}
    except ValueError:
        body = {"base64": data}
    attributes = reading.pair_lines(template.get("attributes", {}))
    return {**body, "attributes": attributes, "orderingKey": template.get("orderingKey", "")}


def _published(target: Target, _: Values, answer: Json) -> Receipt:
    message_id = answer["messageIds"][0]
    return Receipt(f"Published message {message_id}.", f"{target.name}/messages/{message_id}")


def _copy(target: Target, values: Values) -> Call:
    full = full_name(target, "topics", values["targetTopic"])
    times = chosen(values, "filter", "startTime", "endTime", RATE.name)
    return Call("POST", f"{target.name}:copy", {"targetTopic": full, **times})


ACTIONS: Sequence[Action] = [
    Action(
        on=PROJECT,
        verb="createTopic",
        rpc="Publisher.CreateTopic",
        permission="pubsub.topics.create",
        title="Create a topic",
        shown_on=("", "/topics"),
        label="Create the topic",
        fields=[Field(name="id", label="Id", required=True, placeholder="orders"), _RETENTION, LABELS],
        call=_create,
        receipt=created("topic", "topics"),
        command=command("topic create {id}", messageRetentionDuration="retention", labels="label"),
    ),
    Action(
        on=TOPIC,
        verb="publish",
        rpc="Publisher.Publish",
        permission="pubsub.topics.publish",
        title="Publish a message",
        label="Publish the message",
        reads=_template,
        initial=_of_template,
        templates=lambda target: Call("GET", f"{target.project}/messageTemplates", query={"pageSize": "200"}),
        fields=[
            Field(name="template", label="Template", help="Its id. Its message is filled in."),
            Field(name="data", label="Body", kind="area"),
            Field(name="base64", label="Or a file, or a body in base64", kind="area"),
            Field(name="attributes", label="Attributes", kind="area", read=reading.pairs, placeholder="kind=order"),
            Field(name="orderingKey", label="Ordering key"),
        ],
        call=_publish,
        receipt=_published,
        command=command("publish {target} {data}", attributes="attribute", orderingKey="ordering-key"),
    ),
    Action(
        on=TOPIC,
        verb="update",
        rpc="Publisher.UpdateTopic",
        permission="pubsub.topics.update",
        title="Change the settings",
        label="Change the settings",
        fields=[_RETENTION, LABELS],
        call=patching(
            {
                _RETENTION.name: lambda values: values.get(_RETENTION.name),
                "labels": lambda values: values.get("labels", {}),
            },
            "topic",
        ),
        initial=lambda topic: {
            _RETENTION.name: topic.get(_RETENTION.name, ""),
            "labels": reading.pair_lines(topic.get("labels", {})),
        },
        receipt=done("Changed the settings of {target}."),
        command=command("topic update {target}", messageRetentionDuration="retention", labels="label"),
    ),
    Action(
        on=TOPIC,
        verb="freeze",
        rpc="FreezeTopic",
        permission="pubsub.topics.update",
        title="Freeze",
        applies=lambda data: "frozen" not in data.get("topic", {}),
        label="Freeze the topic",
        help="Publishes are refused until the topic is unfrozen. What it has is delivered.",
        fields=[REASON],
        call=posting("freeze", "reason"),
        receipt=done("Froze {target}: publishes are refused.", undo="unfreeze"),
        command=command("topic freeze {target}", reason="reason"),
    ),
    Action(
        on=TOPIC,
        verb="unfreeze",
        rpc="UnfreezeTopic",
        permission="pubsub.topics.update",
        title="Unfreeze",
        applies=lambda data: "frozen" in data.get("topic", {}),
        label="Unfreeze the topic",
        at_once=True,
        asks=asking_itself,
        notes=lambda _, answers: since(
            "It has been frozen",
            answers["own"].answer.get("frozen", {}),
            time="freezeTime",
            by="frozenBy",
            reason="reason",
        ),
        call=posting("unfreeze"),
        receipt=done("Unfroze {target}: it takes messages again.", undo="freeze"),
        command=command("topic unfreeze {target}"),
    ),
    Action(
        on=TOPIC,
        verb="copy",
        rpc="CopyTopic",
        permission="pubsub.topics.attachSubscription",
        title="Copy messages to another topic",
        label="Copy {count}",
        weight=Weight.BOUNDED,
        has_preview=True,
        fields=[
            Field(name="targetTopic", label="To the topic", required=True, placeholder="replay"),
            FILTER,
            Field(name="startTime", label="Published since", kind="time", placeholder="1h"),
            Field(name="endTime", label="And before", kind="time"),
            RATE,
        ],
        call=_copy,
        receipt=operation("Copying {target}."),
        command=command(
            "topic copy {target} {targetTopic}",
            filter="filter",
            startTime="since",
            endTime="until",
            maxMessagesPerSecond="rate",
        ),
    ),
    Action(
        on=TOPIC,
        verb="retract",
        rpc="RetractMessages",
        permission="pubsub.topics.update",
        title="Retract messages",
        label="Retract {count}",
        weight=Weight.LOSSY,
        has_preview=True,
        help="Nobody is handed these messages any more, whatever is sought or redriven.",
        fields=[Field(name="messageIds", label="Message ids", kind="area", required=True, read=reading.ids)],
        call=posting("retract", "messageIds"),
        receipt=lambda target, _values, answer: Receipt(outcomes(f"Messages of {target.id}", answer), target.name),
        command=command("message retract {target} {messageIds} --yes"),
    ),
    Action(
        on=TOPIC,
        verb="purge",
        rpc="PurgeTopic",
        permission="pubsub.topics.delete",
        title="Purge the topic",
        label="Purge {count}",
        weight=Weight.LOSSY,
        has_preview=True,
        help="All that was published is forgotten, for every subscription, and snapshots of the topic are deleted.",
        call=posting("purge"),
        receipt=done("Purged {target}."),
        command=command("purge --topic {target} --yes"),
    ),
    Action(
        on=TOPIC,
        verb="delete",
        rpc="Publisher.DeleteTopic",
        permission="pubsub.topics.delete",
        title="Delete the topic",
        label="Delete the topic",
        weight=Weight.LOSSY,
        has_preview=True,
        help="Its subscriptions stay, and receive nothing more.",
        call=deleting,
        receipt=done("Deleted topic {target}.", path=in_project("topics")),
        command=command("topic delete {target} --yes"),
    ),
]
