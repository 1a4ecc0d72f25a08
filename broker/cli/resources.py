"""The nouns of the command line, one row each: the commands of `broker NOUN COMMAND`, and their texts.

The commands that several nouns have are generated from these rows (client/resource.py).  A command of a single noun
is a function with `@calling` in the module of the noun, in client/commands or auth, and is listed here by its
name.  `broker/cli/main.py` determines where a noun appears in `broker --help`.
"""

from collections.abc import Callable, Mapping, Sequence

import click

from broker.cli.commands import snapshots, subscriptions, topics
from broker.client.api import Json
from broker.client.confirming import losses_of_subscription, losses_of_topic
from broker.client.connection import full_name
from broker.client.fields import CLEAR
from broker.client.messages import message_fields
from broker.client.resource import Create, Decorator, Delete, List, Method, Resource, Show, Table, Update
from broker.client.words import age_of, leaf, pairs_text, short_time
from broker.features.delayed import command as scheduled
from broker.features.iam.commands import accounts, api_keys, keys, roles
from broker.features.iam.commands.names import account_name, guessing_account, project_role
from broker.features.operations import command as op
from broker.features.project_settings import command as settings
from broker.features.push_status import command as push
from broker.features.schedules import command as schedule
from broker.features.schemas import command as schema

_OF_TOPIC = click.option("--topic", metavar="TOPIC", help="Only those of this topic.")
_REASON = click.option("--reason", metavar="TEXT", default="", help="Is shown to whoever asks.")


def _setting(
    command: str,
    example: str,
    *,
    noun: str,
    collection: str,
    about: str,
    table: Table,
    nothing: str,
    create: str,
    change: str,
    options: Sequence[Decorator],
    body: Callable[..., Json],
) -> Resource:
    """Return the commands for a kind of settings of a project.

    `about`: its help.  `example`: the id in examples.  `create`, `change`: options in these.
    """
    return Resource(
        noun=noun,
        collection=collection,
        help=about,
        arguments=(click.argument("name"),),
        path=lambda session, name: full_name(name, collection, session.short_project),
        commands=[
            List([f"broker {command} list"], table=table, nothing=nothing),
            Create([f"broker {command} create {example} {create}"], options=options, body=body),
            Show([f"broker {command} show {example}"]),
            settings.make_update(noun, collection, options, body, f"broker {command} update {example} {change}"),
            Delete([f"broker {command} delete {example} --dry-run", f"broker {command} delete {example}"]),
        ],
    )


RESOURCES: Mapping[str, Resource] = {
    "topic": Resource(
        noun="topic",
        collection="topics",
        help="Topics: what messages are published on.",
        commands=[
            List(
                ["broker topic list", "broker topic list --stats", "broker topic list --json"],
                options=topics.LIST_OPTIONS,
                find=topics.find,
                table=Table(
                    columns={
                        "topic": lambda t: leaf(t["name"]),
                        **topics.STATS_COLUMNS,
                        "retention": lambda t: age_of(t.get("messageRetentionDuration")),
                        "schema": lambda t: leaf(t.get("schemaSettings", {}).get("schema")),
                        "labels": lambda t: pairs_text(t.get("labels")),
                    },
                    whole=("in/s", "retained", "size", "subs", "retention", "schema"),
                    minor=("labels", "retention", "schema", "size", "retained"),
                ),
                nothing="{session.project} has no topic; `broker topic create NAME` makes one.",
            ),
            Create(
                [
                    "broker topic create orders",
                    "broker topic create parcels --retention 7d --label team=sales",
                    "broker topic create alarms --priorities 3 --priority-age 60s",
                ],
                options=topics.OPTIONS,
                body=topics.make_body,
            ),
            Show(
                ["broker topic show orders"],
                help="Show a topic, and its subscriptions.",
                read=topics.read_with_subscriptions,
            ),
            Update(
                [
                    "broker topic update orders --retention 1d",
                    "broker topic update orders --shards 4",
                    "broker topic update alarms --priority-weights 8,3,1",
                    "broker topic update orders --clear labels",
                ],
                options=(*topics.OPTIONS, CLEAR),
                options_named="an option such as --retention, --set or --clear",
                body=topics.make_body,
            ),
            Delete(
                ["broker topic delete orders --dry-run", "broker topic delete parcels --expected-count 4"],
                help="Delete a topic; its subscriptions keep their backlog, and get nothing more.",
                losses=losses_of_topic,
            ),
            topics.browse,
            topics.histogram,
            topics.publishers,
            topics.copy,
            topics.export,
            topics.import_,
            Method(
                ["broker topic freeze orders --reason 'The schema is migrated.'"],
                name="freeze",
                help="Refuse what is published, until it is unfrozen; what is in the log goes out as before. "
                "Needs this broker.",
                options=(
                    click.option("--reason", metavar="TEXT", default="", help="Is told to whoever publishes."),
                ),
                done="Froze {name}.",
            ),
            Method(
                ["broker topic unfreeze orders"],
                name="unfreeze",
                help="Take what is published again.",
                done="Unfroze {name}.",
            ),
            topics.test_filter,
        ],
    ),
    "sub": Resource(
        noun="subscription",
        collection="subscriptions",
        help="Subscriptions: who gets the messages of a topic, and how.",
        commands=[
            List(
                ["broker sub list", "broker sub list --topic orders --json"],
                options=(_OF_TOPIC,),
                find=subscriptions.find,
                table=Table(
                    columns={
                        "subscription": lambda s: leaf(s["name"]),
                        "topic": lambda s: leaf(s["topic"]),
                        "state": subscriptions.state,
                        "by": subscriptions.way_of_delivery,
                        "filter": lambda s: s.get("filter", ""),
                    },
                    whole=("topic", "state"),
                    minor=("filter", "by", "topic"),
                ),
                nothing="There is no subscription; `broker sub create NAME --topic TOPIC` makes one.",
            ),
            Create(
                [
                    "broker sub create billing --topic orders",
                    "broker sub create audit --topic orders --filter 'attributes.env=\"prod\"'",
                ],
                help="Make a subscription; it gets what is published from then on.",
                options=subscriptions.CREATE_OPTIONS,
                body=subscriptions.make_create_body,
                then=subscriptions.warn_if_unread,
            ),
            Show(["broker sub show billing"]),
            Update(
                [
                    "broker sub update billing --ack-deadline 30 --max-backoff 5m",
                    "broker sub update billing --clear retryPolicy",
                ],
                options=(*subscriptions.OPTIONS, CLEAR),
                options_named="an option such as --ack-deadline, --set or --clear",
                body=subscriptions.make_body,
                then=subscriptions.warn_if_unread,
            ),
            subscriptions.set_filter,
            Delete(
                ["broker sub delete audit --dry-run", "broker sub delete audit"],
                help="Delete a subscription with its backlog.",
                losses=losses_of_subscription,
            ),
            Method(
                ["broker sub pause billing --reason 'The database is moved.'"],
                name="pause",
                help="Hand out nothing, to pulls, streams and endpoints, until it is resumed. Needs this broker.",
                options=(_REASON,),
                done="Paused {name}.",
            ),
            Method(
                ["broker sub resume billing"],
                name="resume",
                help="End a pause, whoever began it.",
                done="Resumed {name}.",
            ),
            subscriptions.ack,
            subscriptions.nack,
            subscriptions.reject,
            subscriptions.release,
            subscriptions.dead_letter,
            subscriptions.extend,
            subscriptions.consumers,
            Show(
                ["broker sub position billing"],
                name="position",
                help="Show the backlog, and where the subscription stands in each shard; needs this broker.",
                suffix="/snapshot",
            ),
            Method(
                ["broker sub detach audit --dry-run", "broker sub detach audit"],
                name="detach",
                help="Detach a subscription from its topic: its backlog is dropped and it gets nothing more.",
                question="Detach the subscription {name}?",
                is_safeguarded=True,
                losses=losses_of_subscription,
                done="Detached {name}.",
            ),
            subscriptions.test_filter,
        ],
    ),
    "snapshot": Resource(
        noun="snapshot",
        collection="snapshots",
        help="Snapshots: what a subscription had acknowledged at a time, to be sought back.",
        commands=[
            List(
                ["broker snapshot list", "broker snapshot list --topic orders"],
                options=(_OF_TOPIC,),
                find=snapshots.find,
                table=Table(
                    columns={
                        "snapshot": lambda s: leaf(s["name"]),
                        "topic": lambda s: leaf(s["topic"]),
                        "expires": lambda s: short_time(s.get("expireTime")),
                        "labels": lambda s: pairs_text(s.get("labels")),
                    },
                    whole=("topic", "expires"),
                    minor=("labels", "topic", "expires"),
                ),
                nothing="There is no snapshot; `broker snapshot create NAME --sub SUB` makes one.",
            ),
            Create(
                ["broker snapshot create before-release --sub billing"],
                help="Keep where a subscription stands, for seven days at the most.",
                options=snapshots.CREATE_OPTIONS,
                body=snapshots.make_create_body,
            ),
            Show(["broker snapshot show before-release"]),
            Update(
                ["broker snapshot update before-release --label release=7"],
                help="Change the labels of a snapshot, or when it expires.",
                options=snapshots.UPDATE_OPTIONS,
                options_named="--label, --expires or --clear labels",
                body=snapshots.make_update_body,
            ),
            Delete(
                ["broker snapshot delete before-release"],
                help="Delete a snapshot; messages that only it retains are deleted soon after.",
                question="Delete the snapshot {name}? Nobody can seek to it any more.",
            ),
        ],
    ),
    "schema": Resource(
        noun="schema",
        collection="schemas",
        help="Schemas: which messages a topic takes.",
        commands=[
            List(
                ["broker schema list"],
                parameters={"view": "FULL"},
                table=Table(
                    columns={"schema": lambda s: leaf(s["name"]).partition("@")[0], **schema.REVISIONS.columns},
                    whole=schema.REVISIONS.whole,
                    cut=schema.REVISIONS.cut,
                ),
                nothing="There is no schema; `broker schema create NAME --file FILE` makes one.",
            ),
            schema.create,
            Show(
                ["broker schema show order", "broker schema show order@$REVISION"],
                help="Show a schema, or with SCHEMA@REVISION one of its revisions.",
            ),
            schema.revisions,
            schema.validate,
            schema.check,
            schema.commit,
            schema.rollback,
            schema.delete_revision,
            Delete(
                ["broker schema delete order --dry-run", "broker schema delete order"],
                help="Delete a schema with all its revisions; topics that have it refuse messages from then on.",
                question="Delete the schema {name}? Topics that have it refuse every message from then on.",
                done="Deleted the schema {id}.",
            ),
        ],
    ),
    "scheduled": Resource(
        noun="message",
        collection="scheduled",
        help="Messages that are to come later, while they wait.",
        arguments=scheduled.ARGUMENTS,
        path=scheduled.message_name,
        commands=[
            List(
                ["broker scheduled list reminders"],
                help="List what waits for its time on a topic, the first due first.",
                options=scheduled.LIST_OPTIONS,
                find=scheduled.find,
                table=Table(
                    columns={
                        "id": lambda m: m["messageId"],
                        "comes": lambda m: short_time(m["deliverTime"]),
                        "key": lambda m: m.get("orderingKey", ""),
                        "attributes": lambda m: pairs_text(m.get("attributes")),
                    },
                    whole=("id", "comes"),
                    cut=("key", "attributes"),
                ),
                nothing="No message is scheduled.",
            ),
            Show(
                ["broker scheduled show reminders $WAITING"],
                help="Show a message that waits.",
                fields=message_fields,
            ),
            scheduled.move,
            Delete(
                ["broker scheduled cancel reminders $WAITING"],
                name="cancel",
                help="Let a message never come; refused once it was published.",
                question="Cancel the scheduled message {message_id} of {topic}, for good?",
                done="Cancelled message {message_id}: nobody gets it.",
            ),
        ],
    ),
    "schedule": Resource(
        noun="schedule",
        collection="schedules",
        help="Schedules: messages that are published again and again; these need this broker.",
        commands=[
            List(
                ["broker schedule list"],
                table=Table(
                    columns={
                        "schedule": lambda s: leaf(s["name"]),
                        "topic": lambda s: leaf(s["topic"]),
                        "ticks": schedule.times,
                        "state": lambda s: s["state"],
                        "next": lambda s: short_time(s.get("nextTime")),
                    },
                    whole=("topic", "state", "next"),
                    minor=("topic", "state"),
                ),
                nothing="There is no schedule; `broker schedule create` makes one.",
            ),
            Create(
                [
                    "broker schedule create nightly 'Close up.' --topic jobs --cron '30 2 * * *'",
                    "broker schedule create beat '{{tick}}' --topic jobs --every 90s --template",
                    "broker schedule create nightly --topic jobs --cron '45 2 * * *'",
                ],
                help="Make a schedule, or change one of that name, which without TEXT keeps its message.",
                options=schedule.CREATE_OPTIONS,
                body=schedule.make_body,
                done=schedule.next_tick,
            ),
            Show(
                ["broker schedule show nightly"],
                help="Show a schedule, and what it publishes.",
                fields=schedule.fields,
            ),
            schedule.next_,
            Method(
                ["broker schedule run nightly"],
                name="run",
                help="Publish its message now, once more than it has planned.",
                done="Published message {messageId}.",
            ),
            schedule.history,
            Method(
                ["broker schedule pause nightly"],
                name="pause",
                help="Let nothing tick until it is resumed.",
                done="Paused {id}.",
            ),
            Method(
                ["broker schedule resume nightly"],
                name="resume",
                help="Go on with the first tick from now on.",
                done=schedule.next_tick,
            ),
            Delete(
                ["broker schedule delete nightly"],
                help="Delete a schedule and its history.",
                question="Delete the schedule {name} and its history?",
                done="Deleted the schedule {id}.",
            ),
        ],
    ),
    "mask": _setting(
        "mask",
        "cards",
        noun="masking rule",
        collection="maskingRules",
        about="Masking rules: what callers who may only look do not see of messages; these need this broker.",
        table=Table(
            columns={
                "rule": lambda r: leaf(r["name"]),
                "topics": settings.joined("topics"),
                "subs": settings.joined("subscriptions"),
                "attributes": settings.joined("attributes"),
                "fields": settings.joined("fields"),
            },
            whole=("rule",),
            minor=("subs", "topics"),
        ),
        nothing="No message is masked.",
        create="--topic 'payments*' --field '$.card'",
        change="--field '$.card' --field '$..pin'",
        options=settings.RULE_OPTIONS,
        body=settings.rule_body,
    ),
    "view": _setting(
        "view",
        "late",
        noun="view",
        collection="savedViews",
        about="Saved views: pages of the console with their query; these need this broker.",
        table=Table(
            columns={
                "view": lambda v: leaf(v["name"]),
                "page": lambda v: v["page"],
                "query": lambda v: pairs_text(v.get("query")),
                "title": settings.title,
            },
            whole=("view", "page"),
            minor=("title", "query"),
        ),
        nothing="There is no saved view.",
        create="--page subscriptions --query filter=oldestAge>1h",
        change="--title 'What is late'",
        options=settings.VIEW_OPTIONS,
        body=settings.view_body,
    ),
    "template": _setting(
        "template",
        "sale",
        noun="template",
        collection="messageTemplates",
        about="Templates: messages that are published often; these need this broker.",
        table=Table(
            columns={
                "template": lambda t: leaf(t["name"]),
                "topic": lambda t: leaf(t["topic"]),
                "attributes": lambda t: pairs_text(t.get("attributes")),
                "title": settings.title,
            },
            whole=("template", "topic"),
            minor=("title", "attributes"),
        ),
        nothing="There is no template.",
        create="--topic orders --data '{}' --attribute shop=eu",
        change="--data '{}'",
        options=settings.TEMPLATE_OPTIONS,
        body=settings.template_body,
    ),
    "link": _setting(
        "link",
        "traces",
        noun="link",
        collection="linkTemplates",
        about="Links from messages to traces, logs or a runbook; these need this broker.",
        table=Table(
            columns={
                "link": lambda k: leaf(k["name"]),
                "title": settings.title,
                "url": lambda k: k["url"],
                "topics": settings.joined("topics"),
            },
            whole=("link", "url"),
            minor=("topics", "title"),
        ),
        nothing="There is no link template.",
        create="--title Trace --to 'https://t.example/{traceId}'",
        change="--topic 'orders*'",
        options=settings.LINK_OPTIONS,
        body=settings.link_body,
    ),
    "push": Resource(
        noun="subscription",
        collection="subscriptions",
        help="How pushes to an endpoint go; these need this broker.",
        commands=[
            Show(
                ["broker push status hook"],
                name="status",
                help="Show whether a subscription is pushed, and what its endpoint can take.",
                suffix=":pushStatus",
            ),
            push.failures,
            push.attempts,
            push.set_endpoint,
            Method(
                ["broker push pause hook --reason 'The receiver moves.'"],
                name="pause",
                help="Push nothing until it is resumed; messages wait.",
                options=(_REASON,),
                method="pausePush",
                done="Paused {name}.",
            ),
            Method(
                ["broker push resume hook"],
                name="resume",
                help="End a pause, whoever began it.",
                method="resumePush",
                done="Resumed {name}.",
            ),
            push.test,
            push.resend,
            push.recover,
            push.replay_missing,
        ],
    ),
    "op": Resource(
        noun="operation",
        collection="operations",
        help="Operations: long work that goes on by itself; these need this broker.",
        commands=[
            List(
                ["broker op list", "broker op list --newest --state SUCCEEDED --verb redrive --max 5"],
                help="List the operations of a project, the oldest first.",
                options=op.LIST_OPTIONS,
                find=op.find,
                table=Table(
                    columns={
                        "operation": lambda o: leaf(o["name"]),
                        "what": lambda o: o["metadata"]["verb"],
                        "of": lambda o: leaf(o["metadata"]["target"]),
                        "state": lambda o: o["metadata"].get("state", ""),
                        "done": op.progress,
                        "began": lambda o: short_time(o["metadata"].get("createTime")),
                    },
                    whole=("operation", "what", "of", "state", "done", "began"),
                    minor=("began", "done", "what"),
                ),
                nothing="There is no such operation.",
            ),
            Show(["broker op show $OP"], help="Show an operation, and how far it is.", fields=op.fields),
            op.wait,
            op.cancel,
            Delete(["broker op delete $OP"], question="", help="Forget one that has ended.", done="Forgot {name}."),
        ],
    ),
    "auth accounts": Resource(
        noun="account",
        collection="serviceAccounts",
        help="Service accounts: who programs are.",
        path=account_name,
        guessing=guessing_account,
        commands=[
            accounts.create,
            List(
                ["broker auth accounts list"],
                answer_field="accounts",
                table=accounts.TABLE,
                nothing="There is no service account.",
            ),
            Show(
                ["broker auth accounts show billing"],
                help="Show an account, given by its id in the project, its address or its unique id.",
            ),
            Delete(
                ["broker auth accounts delete $EMAIL"],
                help="Delete an account with its keys.",
                question="Delete the account {id}, its keys and its roles, for good?",
                done="Deleted {id}.",
            ),
            Method(
                ["broker auth accounts disable billing"],
                name="disable",
                help="Refuse the account's keys and tokens until it is enabled.",
                done="Disabled {id}.",
            ),
            Method(
                ["broker auth accounts enable $EMAIL"],
                name="enable",
                help="Accept the keys and tokens of a disabled account again.",
                done="Enabled {id}.",
            ),
        ],
    ),
    "auth keys": Resource(
        noun="key",
        collection="keys",
        help="Keys of service accounts: how programs prove who they are.",
        arguments=keys.ARGUMENTS,
        path=keys.key_name,
        guessing=lambda session, account, key_id: guessing_account(session, account),
        commands=[
            keys.create,
            List(
                ["broker auth keys list $EMAIL"],
                help="List the keys of an account.",
                options=(keys.ACCOUNT,),
                find=keys.find,
                table=Table(
                    columns={"id": lambda k: leaf(k["name"]), "made": lambda k: short_time(k["validAfterTime"])}
                ),
                nothing="It has no key.",
            ),
            Show(["broker auth keys show billing $KEY"], help="Show a key, without what proves it."),
            Delete(
                ["broker auth keys delete $EMAIL $KEY"],
                help="Delete a key; tokens that it has signed are refused from then on.",
                question="Delete the key {id} of {parent}, for good?",
                done="Deleted the key {id}.",
            ),
        ],
    ),
    "auth api-keys": Resource(
        noun="key",
        collection="apiKeys",
        help="API keys, for what has no library.",
        arguments=(click.argument("key_id", metavar="ID"),),
        path=lambda session, key_id: full_name(key_id, "apiKeys", session.short_project),
        commands=[
            api_keys.create,
            List(
                ["broker auth api-keys list"],
                help="List the keys of a project, without what proves them.",
                answer_field="keys",
                table=Table(
                    columns={
                        "id": lambda k: leaf(k["name"]),
                        "name": lambda k: k.get("displayName", ""),
                        "roles": lambda k: ", ".join(k.get("roles", [])),
                        "resources": lambda k: ", ".join(map(leaf, k.get("resources", []))),
                        "made": lambda k: short_time(k["createTime"]),
                    },
                    whole=("id", "made"),
                    minor=("made", "resources"),
                ),
                nothing="There is no API key.",
            ),
            Show(
                ["broker auth api-keys show $API_KEY"],
                help="Show the key of this id, or name, without what proves it.",
            ),
            Delete(
                ["broker auth api-keys delete $API_KEY"],
                help="Delete the key of this id, or name.",
                question="Delete the API key {name}, for good?",
                done="Deleted the key {id}.",
            ),
        ],
    ),
    "auth roles": Resource(
        noun="role",
        collection="roles",
        help="Roles: lists of permissions, predefined or of a project's own.",
        path=project_role,
        commands=[
            List(
                ["broker auth roles list", "broker auth roles list --custom"],
                help="List the roles that a policy can give: the predefined ones and those of the project.",
                options=roles.LIST_OPTIONS,
                find=roles.find,
                table=Table(
                    columns={
                        "role": lambda r: r["name"],
                        "state": lambda r: "deleted" if r.get("deleted") else "",
                        "title": lambda r: r.get("title", ""),
                    },
                    whole=("role",),
                    cut=("title",),
                ),
                nothing="The project has no role of its own; `broker auth roles create` makes one.",
            ),
            Show(
                ["broker auth roles show roles/pubsub.publisher", "broker auth roles show auditor"],
                help="Show a role with its permissions; a name without roles/ is one of the project's own.",
                fields=roles.fields,
            ),
            roles.create,
            roles.update,
            Delete(
                ["broker auth roles delete auditor"],
                help="Delete a role of the project's own; it gives nothing until it is undeleted.",
                question="Delete the role {name}? Members lose what it gives.",
                done="Deleted the role {id}.",
            ),
            Method(
                ["broker auth roles undelete auditor"],
                name="undelete",
                help="Restore a deleted role, with what it gave.",
                done="Restored the role {id}.",
            ),
            roles.permissions_,
        ],
    ),
}
