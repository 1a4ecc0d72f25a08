"""Actions on what a project has besides topics and subscriptions."""

from collections.abc import Mapping, Sequence

from broker.client.words import duration_text
from broker.console.actions import reading
from broker.console.actions.action import (
    CURRENT,
    Action,
    Call,
    Change,
    Field,
    Json,
    Note,
    Receipt,
    Target,
    Values,
    Weight,
    project_of,
)
from broker.console.actions.common import (
    LABELS,
    PROJECT,
    SCHEMA,
    SNAPSHOT,
    asking_itself,
    chosen,
    command,
    created,
    deleting,
    done,
    encoded,
    full_name,
    in_project,
    posting,
    since,
)
from broker.console.actions.differences import differences
from broker.console.page import Block

_SCHEDULE = "projects/{project}/schedules/{schedule}"
_OPERATION = "projects/{project}/operations/{operation}"
_SCHEDULED = "projects/{project}/topics/{topic}/scheduled/{message}"
_STRICTEST = "FULL_TRANSITIVE"  # the compatibility that schemas have without one of their own
_MOST_TOPICS = 1_000  # of a project, among which those with the schema are looked for
_MOST_NAMED = 20
_TYPES = (("AVRO", "Avro"), ("PROTOCOL_BUFFER", "Protocol Buffers"), ("JSON", "JSON Schema"))


def _put_schedule(target: Target, values: Values) -> Call:
    body = {
        "topic": full_name(target, "topics", values["topic"]),
        "message": chosen(values, "attributes", "orderingKey") | {"data": encoded(values.get("data", ""))},
        **chosen(values, "schedule", "interval", "timeZone"),
    }
    return Call("PUT", f"{target.project}/schedules/{values['id']}", body)


_TIMES = [
    Field(
        name="schedule",
        label="Cron",
        placeholder="30 2 * * *",
        help="Five fields, or six with seconds first.",
    ),
    Field(name="interval", label="Or an interval", read=duration_text, placeholder="90s"),
    Field(name="timeZone", label="Time zone", placeholder="Europe/Berlin", help="Of cron. Empty: UTC."),
]


def _retime(target: Target, values: Values) -> Call:
    kept = chosen(values[CURRENT], "topic", "start", "end", "missed")
    return Call("PUT", target.name, kept | chosen(values, "schedule", "interval", "timeZone"))


def _times_of(schedule: Json) -> Mapping[str, str]:
    return {each.name: schedule.get(each.name, "") for each in _TIMES}


def _new_times(schedule: Json, values: Values) -> Sequence[Change]:
    before = [f"{each.label}: {schedule[each.name]}" for each in _TIMES if schedule.get(each.name)]
    after = [f"{each.label}: {values[each.name]}" for each in _TIMES if values.get(each.name)]
    return differences("\n".join(before), "\n".join(after))


def _topic_of(target: Target) -> str:
    """Return the topic of a scheduled message."""
    return f"{target.project}/topics/{target.parts['topic']}"


def _create_schema(target: Target, values: Values) -> Call:
    return Call(
        "POST", f"{target.project}/schemas", chosen(values, "type", "definition"), {"schemaId": values["id"]}
    )


def _commit(target: Target, values: Values) -> Call:
    return Call(
        "POST", f"{target.name}:commit", {"schema": {"name": target.name, **chosen(values, "type", "definition")}}
    )


def _compatibility_asked(target: Target, values: Values) -> Mapping[str, Call]:
    schema = {"name": target.name, **chosen(values, "type", "definition")}
    check = f"{target.project}/schemas:validate"
    return {
        "own": Call("POST", check, {"schema": schema}),
        "strictest": Call("POST", check, {"schema": {**schema, "compatibility": _STRICTEST}}),
        "topics": Call("GET", f"{target.project}/topics", query={"pageSize": str(_MOST_TOPICS)}),
    }


def _compatibility(values: Values, answers: Mapping[str, Block]) -> Sequence[Note]:
    """Return whether the revision is compatible with the others, and which topics have the schema."""
    own, strictest = answers["own"].error, answers["strictest"].error
    mode = values[CURRENT].get("compatibility", _STRICTEST)
    if own is not None and own.status == 403:
        verdict = Note(f"You may not see whether it is compatible: {own.message}")
    elif own is not None:
        verdict = Note(f"It would be refused: {own.message}", is_refusal=True)
    elif strictest is not None:
        verdict = Note(f"The compatibility {mode} allows it, but it is not {_STRICTEST}: {strictest.message}")
    else:
        verdict = Note("It is compatible with all revisions: it reads their messages, and they read its messages.")
    return [verdict, *_topics_with(values[CURRENT]["name"], answers["topics"])]


def _topics_with(schema: str, answer: Block) -> Sequence[Note]:
    if answer.error is not None:
        return [Note(f"You may not see which topics have the schema: {answer.error.message}")]
    found = [one for one in answer.list("topics") if one.get("schemaSettings", {}).get("schema") == schema]
    of_all = f" of the first {_MOST_TOPICS:,}" if "nextPageToken" in answer.answer else ""
    if not found:
        return [Note(f"No topic{of_all} has the schema.")]
    more = [Note(f"{len(found) - _MOST_NAMED} topics more have the schema.")] if len(found) > _MOST_NAMED else []
    return [*(_note_of_topic(one) for one in found[:_MOST_NAMED]), *more]


def _note_of_topic(topic: Json) -> Note:
    last = topic["schemaSettings"].get("lastRevisionId", "")
    if last:
        return Note(f"It takes messages up to revision {last}, so none of the new one alone:", topic["name"])
    return Note("It takes messages of the new revision as soon as that is committed:", topic["name"])


_DEFINITION = [
    Field(name="type", label="Language", kind="choice", choices=_TYPES, required=True, default="AVRO"),
    Field(name="definition", label="Definition", kind="area", required=True),
]

ACTIONS: Sequence[Action] = [
    Action(
        on=PROJECT,
        verb="createSchedule",
        rpc="PutSchedule",
        permission="pubsub.schedules.create",
        title="Create a schedule",
        shown_on=("/schedules",),
        label="Create the schedule",
        fields=[
            Field(name="id", label="Id", required=True, placeholder="nightly"),
            Field(name="topic", label="Topic", required=True, placeholder="jobs"),
            *_TIMES,
            Field(name="data", label="Body", kind="area"),
            Field(name="attributes", label="Attributes", kind="area", read=reading.pairs),
            Field(name="orderingKey", label="Ordering key"),
        ],
        call=_put_schedule,
        receipt=created("schedule", "schedules"),
        command=command(
            "schedule create {id} {data} --topic {topic}", schedule="cron", interval="every", timeZone="time-zone"
        ),
    ),
    Action(
        on=_SCHEDULE,
        verb="run",
        rpc="RunSchedule",
        permission="pubsub.schedules.run",
        needed_on=project_of,
        title="Run now",
        label="Run it now",
        at_once=True,
        help="Publishes one message more, also if the schedule is paused.",
        call=posting("run"),
        receipt=done("Ran {target}."),
        command=command("schedule run {target}"),
    ),
    Action(
        on=_SCHEDULE,
        verb="update",
        rpc="PutSchedule",
        permission="pubsub.schedules.create",
        needed_on=project_of,
        title="Change its times",
        label="Change the times",
        help="It keeps its topic and its message. Its next tick is the first at the new times.",
        fields=_TIMES,
        initial=_times_of,
        changes=_new_times,
        version=lambda schedule: schedule.get("updateTime", ""),
        call=_retime,
        receipt=done("Changed the times of {target}."),
        command=command(
            "schedule create {target} --topic TOPIC", schedule="cron", interval="every", timeZone="time-zone"
        ),
    ),
    Action(
        on=_SCHEDULE,
        verb="pause",
        rpc="PauseSchedule",
        permission="pubsub.schedules.update",
        needed_on=project_of,
        title="Pause",
        applies=lambda data: data.get("schedule", {}).get("state") != "PAUSED",
        label="Pause the schedule",
        at_once=True,
        call=posting("pause"),
        receipt=done("Paused {target}.", undo="resume"),
        command=command("schedule pause {target}"),
    ),
    Action(
        on=_SCHEDULE,
        verb="resume",
        rpc="ResumeSchedule",
        permission="pubsub.schedules.update",
        needed_on=project_of,
        title="Resume",
        applies=lambda data: data.get("schedule", {}).get("state") == "PAUSED",
        label="Resume the schedule",
        at_once=True,
        asks=asking_itself,
        notes=lambda _, answers: since(
            "It has been paused", answers["own"].answer, time="pauseTime", by="pausedBy"
        ),
        call=posting("resume"),
        receipt=done("Resumed {target}.", undo="pause"),
        command=command("schedule resume {target}"),
    ),
    Action(
        on=_SCHEDULE,
        verb="delete",
        rpc="DeleteSchedule",
        permission="pubsub.schedules.delete",
        needed_on=project_of,
        title="Delete the schedule",
        label="Delete the schedule",
        weight=Weight.LOSSY,
        has_preview=True,
        call=deleting,
        receipt=done("Deleted schedule {target}.", path=in_project("schedules")),
        command=command("schedule delete {target} --yes"),
    ),
    Action(
        on=SNAPSHOT,
        verb="delete",
        rpc="Subscriber.DeleteSnapshot",
        permission="pubsub.snapshots.delete",
        title="Delete the snapshot",
        label="Delete the snapshot",
        weight=Weight.LOSSY,
        has_preview=True,
        call=deleting,
        receipt=done("Deleted snapshot {target}.", path=in_project("snapshots")),
        command=command("snapshot delete {target} --yes"),
    ),
    Action(
        on=PROJECT,
        verb="createSchema",
        rpc="SchemaService.CreateSchema",
        permission="pubsub.schemas.create",
        title="Create a schema",
        shown_on=("/schemas",),
        label="Create the schema",
        fields=[Field(name="id", label="Id", required=True, placeholder="order"), *_DEFINITION],
        call=_create_schema,
        receipt=created("schema", "schemas"),
        command=command("schema create {id} --file FILE"),
    ),
    Action(
        on=SCHEMA,
        verb="commit",
        rpc="SchemaService.CommitSchema",
        permission="pubsub.schemas.commit",
        title="Commit a revision",
        label="Commit the revision",
        help="It is refused, with the reason, if it is not compatible with the revisions before.",
        fields=_DEFINITION,
        changes=lambda schema, values: differences(schema.get("definition", ""), values["definition"]),
        asks=_compatibility_asked,
        notes=_compatibility,
        version=lambda schema: f"revision {schema['revisionId']}" if "revisionId" in schema else "",
        call=_commit,
        initial=lambda schema: {"type": schema.get("type", "AVRO"), "definition": schema.get("definition", "")},
        receipt=done("Committed a revision of {target}."),
        command=command("schema commit {target} --file FILE"),
    ),
    Action(
        on=SCHEMA,
        verb="delete",
        rpc="SchemaService.DeleteSchema",
        permission="pubsub.schemas.delete",
        title="Delete the schema",
        label="Delete the schema",
        weight=Weight.LOSSY,
        has_preview=True,
        help="Topics that have it take no messages until they have another one or none.",
        call=deleting,
        receipt=done("Deleted schema {target}.", path=in_project("schemas")),
        command=command("schema delete {target} --yes"),
    ),
    Action(
        on=_OPERATION,
        verb="cancel",
        rpc="Operations.CancelOperation",
        permission="",
        title="Cancel",
        label="Cancel the operation",
        help="No further step begins; what was done stays done.",
        applies=lambda data: not data.get("operation", {}).get("done", False),
        call=posting("cancel"),
        receipt=done("Cancelled the operation."),
        command=command("op cancel {target}"),
    ),
    Action(
        on=_SCHEDULED,
        verb="cancel",
        rpc="CancelScheduled",
        permission="pubsub.topics.update",
        needed_on=_topic_of,
        title="Cancel the message",
        label="Cancel the message",
        weight=Weight.LOSSY,
        has_preview=True,
        shown_on=(),
        call=deleting,
        receipt=lambda target, _values, _answer: Receipt(
            f"Cancelled {target.id}: nobody gets it.", f"{target.project}/topics/{target.parts['topic']}"
        ),
        command=command("scheduled cancel TOPIC {target}"),
    ),
    Action(
        on=PROJECT,
        verb="mark",
        rpc="CreateMark",
        permission="pubsub.topics.update",
        title="Mark this moment",
        label="Make the mark",
        help="A line in all charts of the project, of a deployment for example.",
        shown_on=("", "/activity"),
        fields=[Field(name="text", label="Text", required=True, placeholder="Release 7"), LABELS],
        call=lambda target, values: Call("POST", f"{target.name}/marks", chosen(values, "text", "labels")),
        receipt=lambda target, values, _: Receipt(f"Marked: {values['text']}.", f"{target.name}/activity"),
        command=command("events mark {text}", labels="label"),
        page=lambda target: f"{target.name}/activity",
    ),
    Action(
        on=PROJECT,
        verb="updateSettings",
        rpc="Settings.UpdateSettings",
        permission="pubsub.topics.update",
        title="Change the event topic",
        label="Change the event topic",
        fields=[Field(name="eventTopic", label="Event topic", help="Empty: no events are published.")],
        call=lambda target, values: Call(
            "PATCH",
            f"{target.name}/settings",
            {"eventTopic": full_name(target, "topics", values.get("eventTopic", ""))},
        ),
        receipt=done("Changed the event topic."),
        command=command("events set {eventTopic}"),
    ),
]
