"""Actions do what their pages showed, once, and only for those who may."""

import base64
import html
import json
import re
import shlex
from collections.abc import Collection, Mapping
from typing import Any

import click
import httpx
import pytest

from broker.api.permissions import Need
from broker.cli.main import command_line
from broker.console.actions.action import Action, Weight
from broker.console.actions.table import ACTIONS
from broker.console.render import POLICY
from tests.console.dead_letters import make_dead_letters
from tests.console.sample import HOSTILE, Sample, fill
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Rest, message, text
from tests.fixtures.push_sink import PushSink
from tests.fixtures.registered import ROUTES

PROJECT = "projects/{project}"
TOPIC, SUBSCRIPTION = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/audit"
PUSHED = f"{PROJECT}/subscriptions/billing"
ACCOUNT = f"{PROJECT}/serviceAccounts/{{account}}"
GIVEN = {"member": "user:bob@example.com", "role": "roles/pubsub.viewer"}
AVRO = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
WIDER = AVRO.replace("]}", ', {"name": "b", "type": "int", "default": 0}]}')


@pytest.fixture
async def sample(rest: Rest, push_sink: PushSink) -> Sample:
    return await fill(rest, push_sink)


def action_of(verb: str, on: str) -> Action:
    """Return the action of a path such as "projects/{project}/topics/{topic}"."""
    [found] = [each for each in ACTIONS if each.verb == verb and each.on == on]
    return found


def hidden(page: str) -> dict[str, str]:
    """Return what the form of a page sends with what is typed."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))


async def look(client: httpx.AsyncClient, address: str, typed: Mapping[str, str]) -> httpx.Response:
    return await client.get(address, params=dict(typed))


async def act(client: httpx.AsyncClient, address: str, typed: Mapping[str, str], **more: str) -> httpx.Response:
    """Look at the action first, as its page makes one do, and send its form then."""
    page = await look(client, address, typed)
    confirm = {"confirm": address.partition(":")[0].rsplit("/", 1)[-1]} if 'name="confirm"' in page.text else {}
    return await client.post(address, data={**more, **typed, **hidden(page.text), **confirm})


def receipt(answer: httpx.Response) -> str:
    """Return the text of the receipt that an action has left."""
    cookie = answer.cookies["broker_receipt"].strip('"')
    said: str = json.loads(base64.urlsafe_b64decode(cookie))["text"]
    return said


def note(page: str) -> str:
    """Return the error on a page."""
    found = re.search(r'id="error">(.*?)</p>', page, re.DOTALL)
    return html.unescape(found[1]) if found else ""


# What is typed into each form, in an order in which each can be done.
DONE: list[tuple[str, str, dict[str, str], str]] = [
    (PROJECT, "createTopic", {"id": "made", "labels": "team=billing"}, "Created topic made."),
    (PROJECT, "createSubscription", {"id": "got", "topic": "made"}, "Created subscription got."),
    (PROJECT, "createSchedule", {"id": "beat", "topic": "made", "interval": "9", "data": "a"}, "Created schedule"),
    (PROJECT, "createSchema", {"id": "Row", "type": "AVRO", "definition": AVRO}, "Created schema Row."),
    (PROJECT, "updateSettings", {"eventTopic": "morgue"}, "Changed the event topic."),
    (TOPIC, "publish", {"data": "by hand", "attributes": "a=b"}, "Published message "),
    (TOPIC, "update", {"messageRetentionDuration": "3600"}, "Changed the settings of orders."),
    (TOPIC, "freeze", {"reason": "incident"}, "Froze orders"),
    (TOPIC, "unfreeze", {}, "Unfroze orders"),
    (TOPIC, "copy", {"targetTopic": "made"}, "Copying orders."),
    (TOPIC, "retract", {"messageIds": "{message}"}, "Messages of orders: 1 retracted."),
    (SUBSCRIPTION, "pause", {"reason": "incident"}, "Paused audit"),
    (SUBSCRIPTION, "resume", {}, "Resumed audit."),
    (SUBSCRIPTION, "snapshot", {"id": "kept"}, "Made snapshot kept."),
    (SUBSCRIPTION, "seek", {"time": "now", "undoable": "on"}, "Moved audit: 0 messages"),
    (SUBSCRIPTION, "undoSeek", {}, "Moved audit: "),
    (SUBSCRIPTION, "purge", {"undoable": "on"}, "Purged audit."),
    (SUBSCRIPTION, "resend", {"messageIds": "{message}"}, "Messages to audit: "),
    (SUBSCRIPTION, "release", {"messageIds": "{message}"}, "Messages of audit: "),
    (PUSHED, "deadLetter", {"messageIds": "{message}"}, "Messages of billing: "),
    (SUBSCRIPTION, "update", {"ackDeadlineSeconds": "30"}, "Changed the settings of audit."),
    (SUBSCRIPTION, "setFilter", {"filter": "attributes:a"}, "Changed the filter of audit."),
    (PUSHED, "pausePush", {"reason": "incident"}, "Paused the pushes of billing."),
    (PUSHED, "resumePush", {}, "Resumed the pushes of billing."),
    (PUSHED, "testPush", {"data": "hello"}, "The endpoint answered 503"),
    (PUSHED, "recover", {"startTime": "1h"}, "Recovering the pushes of billing."),
    (PUSHED, "replayMissing", {"startTime": "1h"}, "Pushing to the endpoint of billing what it missed."),
    (PUSHED, "setEndpoint", {"pushEndpoint": ""}, "Changed the endpoint of billing."),
    (SUBSCRIPTION, "detach", {}, "Detached audit."),
    (SUBSCRIPTION, "delete", {}, "Deleted subscription audit."),
    (f"{PROJECT}/schedules/nightly", "run", {}, "Ran nightly."),
    (f"{PROJECT}/schedules/nightly", "update", {"interval": "2h"}, "Changed the times of nightly."),
    (f"{PROJECT}/schedules/nightly", "pause", {}, "Paused nightly."),
    (f"{PROJECT}/schedules/nightly", "resume", {}, "Resumed nightly."),
    (f"{PROJECT}/schedules/nightly", "delete", {}, "Deleted schedule nightly."),
    (f"{PROJECT}/schemas/Order", "grant", GIVEN, "user:bob@example.com has roles/pubsub.viewer on Order."),
    (f"{PROJECT}/schemas/Order", "revoke", GIVEN, "user:bob@example.com has roles/pubsub.viewer on Order no more."),
    (f"{PROJECT}/schemas/Order", "commit", {"type": "AVRO", "definition": WIDER}, "Committed a revision of Order."),
    (f"{PROJECT}/schemas/Order", "delete", {}, "Deleted schema Order."),
    (f"{PROJECT}/snapshots/before", "grant", GIVEN, "user:bob@example.com has roles/pubsub.viewer on before."),
    (f"{PROJECT}/snapshots/before", "revoke", GIVEN, " has roles/pubsub.viewer on before no more."),
    (f"{PROJECT}/snapshots/kept", "delete", {}, "Deleted snapshot kept."),
    (f"{PROJECT}/operations/{{operation}}", "cancel", {}, "Cancelled the operation."),
    (PROJECT, "mark", {"text": "Release 7", "labels": "release=7"}, "Marked: Release 7."),
    (PROJECT, "setQuota", {"quota": "publishMessages", "limit": "500"}, "Set publishMessages of "),
    (PROJECT, "grant", GIVEN, "user:bob@example.com has roles/pubsub.viewer on "),
    (PROJECT, "revoke", GIVEN, " no more."),
    (TOPIC, "grant", GIVEN, "user:bob@example.com has roles/pubsub.viewer on orders."),
    (TOPIC, "revoke", GIVEN, "user:bob@example.com has roles/pubsub.viewer on orders no more."),
    (PUSHED, "grant", GIVEN, "user:bob@example.com has roles/pubsub.viewer on billing."),
    (PUSHED, "revoke", GIVEN, "user:bob@example.com has roles/pubsub.viewer on billing no more."),
    (PROJECT, "createServiceAccount", {"id": "made-here", "displayName": "Made here"}, "Created made-here@"),
    (ACCOUNT, "grant", GIVEN, "user:bob@example.com has roles/pubsub.viewer on reporting@"),
    (ACCOUNT, "revoke", GIVEN, "user:bob@example.com has roles/pubsub.viewer on reporting@"),
    (ACCOUNT, "disable", {}, "Disabled reporting@"),
    (ACCOUNT, "enable", {}, "Enabled reporting@"),
    (ACCOUNT, "delete", {}, "Deleted service account reporting@"),
    (TOPIC, "purge", {}, "Purged orders."),
    (TOPIC, "delete", {}, "Deleted topic orders."),
]  # fmt: skip
# In tests of their own.
ELSEWHERE = {"redrive", "discard", "editDeadLetter", "scheduled"}
ELSEWHERE |= {"createKey", "createApiKey", "createShareLink"}


async def test_each_action_does_what_its_page_says_and_leaves_a_receipt(rest: Rest, sample: Sample) -> None:
    """The page is shown with the policy, and looking at it changes nothing that the action changes."""
    for path, verb, given, said in DONE:
        address = f"{sample.page(path)}:{verb}"
        typed = {
            name: value.format(**sample.ids) if "{message}" in value else value for name, value in given.items()
        }
        page = await look(rest.client, address, typed)
        assert page.status_code == 200, (address, page.text)
        assert page.headers["content-security-policy"] == POLICY
        done = await act(rest.client, address, typed)
        assert done.status_code == 303, (address, note(done.text) or done.text)
        assert said in receipt(done), address
        shown = await rest.client.get(done.headers["location"])
        assert shown.status_code == 200, (address, done.headers["location"], shown.text)
        assert html.escape(said, quote=False) in shown.text.replace("&#39;", "'"), address
    assert (await rest.ok("GET", rest.topic("made")))["labels"] == {"team": "billing"}
    assert (await rest.ok("GET", f"{rest.project}/settings"))["eventTopic"] == rest.topic("morgue")


def test_each_action_is_tried_and_is_a_call_of_the_specification() -> None:
    tried = {(verb, path.count("/"), path.split("/")[2] if "/" in path[10:] else "") for path, verb, _, _ in DONE}
    for action in ACTIONS:
        parts = action.on.split("/")
        key = (action.verb, action.on.count("/"), parts[2] if len(parts) > 2 else "")
        elsewhere = action.verb in ELSEWHERE or {"scheduled", "keys", "apiKeys", "shareLinks"}.intersection(parts)
        assert key in tried or elsewhere, action.path
    operations = {route.operation for route in ROUTES} | {route.rpc.name for route in ROUTES}
    assert {action.rpc for action in ACTIONS} <= operations


def test_each_action_is_offered_to_those_who_have_a_permission_that_its_call_needs() -> None:
    for action in ACTIONS:
        calls = [route.rpc for route in ROUTES if action.rpc in (route.rpc.name, route.operation)]
        needed = {one for rpc in calls for need in rpc.needs.all for one in permissions_of(need)}
        assert action.permission in (needed or {""}), action.path


def permissions_of(need: Need) -> Collection[str]:
    return [need.permission] if isinstance(need.permission, str) else need.permission.values()


async def test_a_link_to_a_form_leaves_the_defaults_of_what_it_does_not_name(rest: Rest, sample: Sample) -> None:
    address = f"/console/{rest.subscription('mail')}:seek"
    for query, is_checked in (({"time": "1h"}, True), ({"time": "1h", "snapshot": ""}, False)):
        page = await look(rest.client, address, query)
        [box] = re.findall(r'<input type="checkbox"[^>]*name="undoable"[^>]*>', page.text)
        assert ("checked" in box) == is_checked


async def test_the_commands_of_actions_are_commands(rest: Rest, sample: Sample) -> None:
    """They have the options and as many words as the command line takes."""
    root = command_line()
    for path, verb, given, _ in DONE:
        typed = {name: value.replace("{message}", sample.message_id) for name, value in given.items()}
        page = await look(rest.client, f"{sample.page(path)}:{verb}", typed)
        [line] = re.findall(r'<pre class="command"><code>(.+?)</code>', page.text, re.DOTALL)
        _, *words = shlex.split(html.unescape(line))
        context: click.Context = click.Context(root)
        command: click.Command | None = root
        while isinstance(command, click.Group):
            command = command.get_command(context, words.pop(0))
        assert command is not None, line
        context = click.Context(command)
        given_options, _, order = command.make_parser(context).parse_args(args=list(words))
        assert not context.args, (line, context.args)
        for parameter in order:
            if isinstance(parameter, click.Argument) and parameter.nargs == 1:
                assert given_options[str(parameter.name)] is not None, line


async def test_dead_letters_are_redriven_discarded_and_edited(rest: Rest, push_sink: PushSink) -> None:
    ids = await make_dead_letters(rest, ["a", "b", "c"])
    address = f"/console/{rest.subscription('worker')}"
    page = await look(rest.client, f"{address}:discard", {"messageIds": ids[0]})
    assert "Discard 1 message<" in page.text
    assert receipt(await act(rest.client, f"{address}:discard", {"messageIds": ids[0]})) == (
        "Messages of worker: 1 discarded."
    )
    edit = {"messageId": ids[1], "data": "B", "setAttributes": "mended=yes"}
    assert "edited, as message" in receipt(await act(rest.client, f"{address}:editDeadLetter", edit))
    assert "Redrive 1 message<" in (await look(rest.client, f"{address}:redrive", {})).text
    done = await act(rest.client, f"{address}:redrive", {})
    operation = done.headers["location"].removeprefix("/console/")
    finished = await rest.ok("POST", f"{operation}:wait", {"timeout": "60s"})
    assert finished["metadata"]["done"] == "1"
    assert sorted(text(one["message"]) for one in await rest.drain("worker")) == ["B", "c"]


async def test_what_has_changed_since_it_was_shown_is_refused_and_shown_again(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("a", "b")
    address = f"/console/{rest.subscription()}:purge"
    shown = hidden((await look(rest.client, address, {})).text)
    await rest.publish("c")
    aged = await rest.client.post(address, data={**shown, "confirm": "sub", "expectedCount": "3"})
    assert aged.status_code == 409, aged.text
    assert note(aged.text).startswith("Nothing was done: it has changed since it was shown.")
    assert "<strong>3 messages</strong>" in aged.text
    assert len(await rest.pull()) == 3


async def test_what_came_after_the_numbers_were_shown_is_left_alone(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("a", "b")
    address = f"/console/{rest.subscription()}:purge"
    shown = hidden((await look(rest.client, address, {})).text)
    await rest.publish("c")
    assert (await rest.client.post(address, data={**shown, "confirm": "sub"})).status_code == 303
    assert [text(one["message"]) for one in await rest.drain()] == ["c"]


@pytest.mark.parametrize(
    ("without", "status", "said"),
    [
        ({"expectedCount", "asOf"}, 400, "Look at what this would do first; nothing was done."),
        ({"confirm"}, 400, "Type sub to confirm; nothing was done."),
    ],
)
async def test_an_action_that_loses_something_needs_its_numbers_and_the_id(
    rest: Rest, without: set[str], status: int, said: str
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("a")
    address = f"/console/{rest.subscription()}:delete"
    form = {**hidden((await look(rest.client, address, {})).text), "confirm": "sub"}
    refused = await rest.client.post(
        address, data={name: value for name, value in form.items() if name not in without}
    )
    assert (refused.status_code, note(refused.text)) == (status, said)
    assert len(await rest.pull()) == 1


@pytest.mark.parametrize(
    ("verb", "typed", "said"),
    [
        ("seek", {"time": "yesterdayish"}, "To the time must be a time such as"),
        (
            "update",
            {"ackDeadlineSeconds": "ten"},
            "Ack deadline must be a duration such as 30s, 10m, 12h or 7d, not 'ten'.",
        ),
        ("redrive", {"maxMessagesPerSecond": "nan"}, "must be a number, not 'nan'."),
        ("update", {"labels": "team"}, "Labels must be KEY=VALUE, not 'team'."),
        ("setFilter", {"filter": "attributes"}, "The filter is not valid: at column 11"),
        ("snapshot", {}, "Id is needed."),
    ],
)
async def test_bad_input_is_refused_beside_what_was_typed(
    rest: Rest, verb: str, typed: Mapping[str, str], said: str
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    before = await rest.ok("GET", rest.subscription())
    refused = await rest.client.post(f"/console/{rest.subscription()}:{verb}", data=dict(typed))
    assert refused.status_code == 400
    assert said in note(refused.text), refused.text
    for value in typed.values():
        assert html.escape(value) in refused.text
    assert await rest.ok("GET", rest.subscription()) == before


async def test_hostile_texts_in_a_link_to_an_action_are_shown_and_never_interpreted(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    for action in ACTIONS:
        if action.on != "projects/{project}/subscriptions/{subscription}":
            continue
        typed = {each.name: HOSTILE for each in action.fields}
        page = await look(rest.client, f"/console/{rest.subscription()}:{action.verb}", typed)
        assert page.status_code in (200, 400), action.verb
        assert "<script>alert" not in page.text
        assert "60481729" not in page.text  # 7777 * 7777


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://elsewhere.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
    ids=str,
)
async def test_forms_of_other_pages_do_nothing(rest: Rest, headers: Mapping[str, str]) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    refused = await rest.client.post(f"/console/{rest.subscription()}:pause", data={"reason": "x"}, headers=headers)
    assert refused.status_code == 403
    assert "paused" not in await rest.ok("GET", rest.subscription())


ROLES = ["roles/viewer", "roles/pubsub.viewer", "roles/pubsub.subscriber", "roles/pubsub.publisher", "roles/editor"]


@pytest.mark.parametrize("role", ROLES)
async def test_each_role_is_offered_what_it_may_do_and_is_refused_the_rest(database_url: str, role: str) -> None:
    """By hand every action is tried: it is refused exactly if its page says that a permission is missing."""
    async with guarded(database_url, console="auto") as world:
        project = world.project
        await _make_all(world)
        await world.client.post("/console/login", data={"credential": json.dumps(world.admin)})
        for page in ("", "/topics", "/subscriptions", "/schedules", "/schemas"):
            assert (await world.client.get(f"/console/{project}{page}")).status_code == 200, page
        account = await world.account("somebody", role=role)
        await world.client.post("/console/login", data={"credential": json.dumps(await world.key(account))})
        for action in ACTIONS:
            if action.on not in RESOURCES or "" not in action.shown_on or action.verb in ONLY_SOMETIMES:
                continue
            resource = f"/console/{project}/{RESOURCES[action.on]}"
            typed = TYPED.get((action.on.split("/")[-2], action.verb), {})
            address = f"{resource}:{action.verb}"
            page = await world.client.get(resource)
            form = await look(world.client, address, typed)
            permitted = form.status_code != 403 and "It requires <code>" not in form.text
            if page.status_code == 200:
                offered = f'href="{address}' in page.text or f'action="{address}"' in page.text
                assert offered == permitted, (role, action.verb)
            answer = await act(world.client, address, typed, **SHOWN)
            assert (answer.status_code == 403) != permitted, (role, action.verb, answer.text)
            assert answer.status_code < 500
            if permitted:
                await _make_all(world, action.on.split("/")[-2])


RESOURCES = {
    "projects/{project}/topics/{topic}": "topics/orders",
    "projects/{project}/subscriptions/{subscription}": "subscriptions/audit",
    "projects/{project}/schedules/{schedule}": "schedules/nightly",
    "projects/{project}/snapshots/{snapshot}": "snapshots/kept",
    "projects/{project}/schemas/{schema}": "schemas/Order",
}
# Offered for some states of a resource only, or in need of another permission, on another resource.
ONLY_SOMETIMES = {
    "copy",
    "deadLetter",
    "unfreeze",
    "resume",
    "pausePush",
    "resumePush",
    "testPush",
    "recover",
    "replayMissing",
}
TYPED = {
    (path.split("/")[-2] if path.count("/") > 1 else "", verb): typed
    for path, verb, typed, _ in DONE
    if not any("{" in value for value in typed.values())
}
TYPED |= {
    ("subscriptions", "snapshot"): {"id": "again"},
    ("topics", "copy"): {"targetTopic": "orders"},
    ("topics", "retract"): {"messageIds": "1"},
    ("subscriptions", "resend"): {"messageIds": "1"},
    ("subscriptions", "release"): {"messageIds": "1"},
    ("schemas", "commit"): {"type": "AVRO", "definition": WIDER},
}
SHOWN = {
    "etag": "AAAA",
    "references": "0",
    "expectedCount": "0",
    "asOf": "2100-01-01T00:00:00Z",
}  # where the page shows nothing


async def _make_all(world: Guarded, collection: str = "") -> None:
    """Make the resources anew, which an action may have deleted, frozen, paused or detached.

    `collection`: those of it alone ("": all).
    """
    project, topic = world.project, f"{world.project}/topics/orders"
    if collection in ("", "topics", "subscriptions"):
        await world.call("PUT", topic, {})
        await world.call("POST", f"{topic}:unfreeze", {})
        await world.call("DELETE", f"{project}/subscriptions/audit")
        await world.ok("PUT", f"{project}/subscriptions/audit", {"topic": topic})
    if collection in ("", "schedules"):
        schedule = {"topic": topic, "message": {"data": "YQ=="}, "interval": "3600s"}
        await world.ok("PUT", f"{project}/schedules/nightly", schedule)
        await world.ok("POST", f"{project}/schedules/nightly:resume", {})
    if collection in ("", "topics", "snapshots"):  # a purge of the topic deletes its snapshots
        await world.call("DELETE", f"{project}/snapshots/kept")
        await world.ok("PUT", f"{project}/snapshots/kept", {"subscription": f"{project}/subscriptions/audit"})
    if collection in ("", "schemas"):
        await world.call("DELETE", f"{project}/schemas/Order")
        await world.ok("POST", f"{project}/schemas?schemaId=Order", {"type": "AVRO", "definition": AVRO})


async def test_a_session_that_has_ended_loses_nothing_that_was_typed(database_url: str) -> None:
    async with guarded(database_url, console="auto") as world:
        await world.ok("PUT", f"{world.project}/topics/orders", {})
        account = await world.account("somebody")
        key = await world.key(account)
        await world.client.post("/console/login", data={"credential": json.dumps(key)})
        await world.ok("DELETE", key["name"])
        answer = await world.client.post(
            f"/console/{world.project}/topics/orders:publish", data={"data": "a long text"}
        )
        assert answer.status_code == 401
        assert "Sign in in another tab" in note(answer.text)
        assert "a long text" in answer.text


async def test_an_edited_dead_letter_is_compared_with_what_it_was(rest: Rest) -> None:
    """The form has the body; what is not changed is not sent, and what is changed is shown."""
    [message_id] = await make_dead_letters(rest, [message('{\n"a": 1,\n"b": 2\n}', {"kind": "x"})])
    address = f"/console/{rest.subscription('worker')}:editDeadLetter"
    first = await look(rest.client, address, {"messageId": message_id})
    assert '{\n"a": 1,\n"b": 2\n}</textarea>' in html.unescape(first.text)
    assert "Nothing would change." in first.text
    typed = {"messageId": message_id, "data": '{\n"a": 1,\n"b": 3\n}', "setAttributes": "kind=y"}
    shown = await look(rest.client, address, typed)
    lines = re.findall(r"<(ins|del)><span.*?</span>(.*?)</", shown.text)
    assert [(sign, html.unescape(line)) for sign, line in lines] == [
        ("del", "kind=x"),
        ("ins", "kind=y"),
        ("del", '"b": 2'),
        ("ins", '"b": 3'),
    ]
    assert "edited, as message" in receipt(await act(rest.client, address, typed))
    [back] = await rest.drain("worker")
    assert (text(back["message"]), back["message"]["attributes"]["kind"]) == (typed["data"], "y")


async def test_a_policy_that_somebody_else_changed_is_shown_again(rest: Rest) -> None:
    await rest.create_topic()
    address = f"/console/{rest.topic()}:grant"
    page = await look(rest.client, address, GIVEN)
    assert "user:bob@example.com has roles/pubsub.viewer</ins>" in page.text
    other = {"role": "roles/pubsub.publisher", "members": ["user:eve@example.com"]}
    await rest.ok("POST", f"{rest.topic()}:setIamPolicy", {"policy": {"bindings": [other]}})
    refused = await rest.client.post(address, data={**GIVEN, **hidden(page.text)})
    assert refused.status_code == 409, refused.text
    assert note(refused.text).startswith("Nothing was done: it has changed since it was shown.")
    unseen = await rest.client.post(address, data=GIVEN)
    assert (unseen.status_code, note(unseen.text)) == (400, "Look at what this would do first; nothing was done.")
    done = await rest.client.post(address, data={**GIVEN, **hidden(refused.text)})
    assert done.status_code == 303, done.text
    policy = await rest.ok("GET", f"{rest.topic()}:getIamPolicy")
    assert policy["bindings"] == [other, {"role": GIVEN["role"], "members": [GIVEN["member"]]}]
    again = await look(rest.client, address, GIVEN)
    assert "Nothing would change." in again.text
    assert "Give the role</button>" not in again.text


async def test_a_secret_is_shown_once_and_is_in_no_address_and_no_cookie(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded(database_url, console="auto", audit="all") as world:
        project = world.project
        await world.ok("PUT", f"{project}/topics/orders", {})
        hook = {"topic": f"{project}/topics/orders", "pushConfig": {"pushEndpoint": "http://127.0.0.1:9/"}}
        await world.ok("PUT", f"{project}/subscriptions/hook", hook)
        account = await world.account("key-maker", role="")
        await world.client.post("/console/login", data={"credential": json.dumps(world.admin)})
        for name, verb, typed in (
            (project, "createApiKey", {"displayName": "Page", "roles": "roles/pubsub.viewer"}),
            (account["name"], "createKey", {}),
            (f"{project}/subscriptions/hook", "createShareLink", {"ttl": "1h", "recover": "on"}),
        ):
            answer = await act(world.client, f"/console/{name}:{verb}", typed)
            assert answer.status_code == 200, answer.text
            assert answer.headers["cache-control"] == "no-store"
            assert "set-cookie" not in answer.headers
            [secret] = re.findall(r'id="secret"[^>]*><code>(.*?)</code>', answer.text, re.DOTALL)
            secret = html.unescape(secret)
            token = json.loads(secret)["private_key"] if verb == "createKey" else secret.rpartition("#")[2]
            page = await world.client.get(f"/console/{name if verb != 'createApiKey' else f'{project}/apiKeys'}")
            assert page.status_code == 200
            assert token not in page.text
            assert token not in caplog.text
            assert token not in str(dict(world.client.cookies))
        [key] = (await world.ok("GET", f"{project}/apiKeys"))["keys"]
        [link] = (await world.ok("GET", f"{project}/subscriptions/hook/shareLinks"))["shareLinks"]
        assert link["permissions"] == ["VIEW_PUSH_ATTEMPTS", "RECOVER"]
        [account_key] = (await world.ok("GET", f"{account['name']}/keys"))["keys"]
        for page_of, name in (
            (f"{project}/apiKeys", key["name"]),
            (account["name"], account_key["name"]),
            (f"{project}/subscriptions/hook/pushAttempts", link["name"]),
        ):
            page = await world.client.get(f"/console/{page_of}")
            assert f'href="/console/{name}:delete"' in page.text, name
            done = await act(world.client, f"/console/{name}:delete", {})
            assert done.status_code == 303, done.text
            assert f'href="/console/{name}:delete"' not in (await world.client.get(f"/console/{page_of}")).text


async def test_a_message_is_published_from_a_template(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_topic("other")
    await rest.create_subscription()
    for name, topic in (("sale", "topic"), ("elsewhere", "other")):
        body = {"topic": rest.topic(topic), "title": name, **message("twelve", {"shop": "eu"})}
        await rest.ok("PUT", f"{rest.project}/messageTemplates/{name}", body)
    address = f"/console/{rest.topic()}:publish"
    page = await look(rest.client, address, {})
    assert 'href="?template=sale"' in page.text
    assert "template=elsewhere" not in page.text
    filled = await look(rest.client, address, {"template": "sale"})
    assert "twelve</textarea>" in filled.text
    assert "shop=eu</textarea>" in filled.text
    done = await rest.client.post(address, data={"template": "sale", "data": "thirteen", "attributes": "shop=eu"})
    assert done.status_code == 303, done.text
    [received] = await rest.pull()
    assert (text(received), received["message"]["attributes"]) == ("thirteen", {"shop": "eu"})


async def test_times_of_a_schedule_that_somebody_else_has_changed_are_shown_again(rest: Rest) -> None:
    await rest.create_topic()
    schedule = f"{rest.project}/schedules/nightly"
    body = {"topic": rest.topic(), "message": {"data": "YQ=="}, "schedule": "30 2 * * *", "missed": "ALL"}
    await rest.ok("PUT", schedule, body)
    address, typed = f"/console/{schedule}:update", {"interval": "2h"}
    shown = await look(rest.client, address, {})
    assert 'value="30 2 * * *"' in shown.text
    await rest.ok("PUT", schedule, {**body, "schedule": "45 2 * * *"})
    refused = await rest.client.post(address, data={**typed, **hidden(shown.text)})
    assert refused.status_code == 409, refused.text
    assert note(refused.text).startswith("Nothing was done: it has changed since it was shown.")
    done = await rest.client.post(address, data={**typed, **hidden(refused.text)})
    assert receipt(done) == "Changed the times of nightly."
    found = await rest.ok("GET", schedule)
    assert (found["interval"], found["missed"], found["message"]) == ("7200s", "ALL", {"data": "YQ=="})


async def test_a_form_that_takes_something_back_says_what_since_when_and_why(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(retainAckedMessages=True)
    await rest.publish("a", "b")
    await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2100-01-01T00:00:00Z", "undoable": True})
    await rest.ok("POST", f"{rest.subscription()}:pause", {"reason": "incident 4711"})
    await rest.ok("POST", f"{rest.topic()}:freeze", {"reason": "It is migrated."})
    schedule = f"{rest.project}/schedules/nightly"
    await rest.ok("PUT", schedule, {"topic": rest.topic(), "message": {"data": "YQ=="}, "interval": "3600s"})
    await rest.ok("POST", f"{schedule}:pause", {})
    for name, verb, said in (
        (rest.subscription(), "resume", r"It has been paused since <time.*?: incident 4711"),
        (rest.subscription(), "undoSeek", r"The seek at <time.*? settled 2 messages unacknowledged\."),
        (rest.topic(), "unfreeze", r"It has been frozen since <time.*?: It is migrated\."),
        (schedule, "resume", r"It has been paused since <time"),
    ):
        page = await look(rest.client, f"/console/{name}:{verb}", {})
        [notes] = re.findall(r'id="notes">(.*?)</ul>', page.text, re.DOTALL)
        assert re.search(said, notes), (verb, notes)


def test_lossy_actions_have_previews() -> None:
    for action in ACTIONS:
        assert action.has_preview == (action.weight is not Weight.REVERSIBLE), action.path


async def test_a_message_of_a_file_is_published_byte_for_byte(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    data = bytes(range(256))
    form: dict[str, Any] = {"base64": base64.b64encode(data).decode()}
    done = await rest.client.post(f"/console/{rest.topic()}:publish", data=form)
    assert done.status_code == 303, done.text
    [received] = await rest.pull()
    assert base64.b64decode(received["message"]["data"]) == data
