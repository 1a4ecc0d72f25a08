"""Pages show what the API answers to their viewer, and nothing on them runs."""

import asyncio
import html
import re
import shlex
from collections.abc import Mapping
from urllib.parse import quote

import httpx
import pytest
from markupsafe import escape

from broker.api.rest.app import RestApi
from broker.app.asgi import for_port
from broker.app.broker import Broker
from broker.cli.main import main
from broker.console.api import Api, Json, Viewer
from broker.console.page import View
from broker.console.render import POLICY
from broker.console.routes import PAGES
from broker.net.first_bytes import HTTP1_API
from tests.console.budgets import budget_of
from tests.console.sample import HOSTILE, QUERY, Sample, fill
from tests.fixtures.broker import Rest, eventually, message
from tests.fixtures.push_sink import PushSink
from tests.fixtures.registered import ROUTES


async def page(rest: Rest, path: str, **options: object) -> httpx.Response:
    return await rest.client.get(path, **options)  # type: ignore[arg-type]


async def called_by_curl(rest: Rest, arguments: list[str]) -> httpx.Response:
    """Make the call that curl makes with these arguments."""
    if "-d" not in arguments:
        return await rest.client.get(arguments[-1])
    return await rest.client.post(arguments[-1], content=arguments[arguments.index("-d") + 1])


async def test_every_page_is_shown_with_a_strict_policy_and_its_commands_print_the_same(
    rest: Rest, sample: Sample
) -> None:
    url = str(rest.client.base_url)
    for route in PAGES:
        answer = await page(rest, sample.page(route.path), params=QUERY)
        assert answer.status_code == 200, (route.path, answer.text)
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"<style|\son\w+=|style=|javascript:|<script>", answer.text), route.path
        commands = commands_on(answer)
        assert commands, route.path
        for command in commands:
            program, *arguments = shlex.split(command)
            if program == "curl":
                assert (await called_by_curl(rest, arguments)).status_code == 200, command
            else:
                assert await asyncio.to_thread(main, [*arguments, "--url", url]) == 0, command


async def test_hostile_contents_are_shown_as_they_were_published_and_never_interpreted(
    rest: Rest, sample: Sample
) -> None:
    shown = HOSTILE.replace("\u202e", "\\u202e").replace("\x07", "\\x07")
    messages, tail = f"{rest.topic('orders')}/messages", f"{rest.topic('orders')}/tail"
    for path in (f"{rest.project}/messages/{sample.message_id}", messages, tail, rest.subscription("audit")):
        answer = await page(rest, f"/console/{path}")
        assert "<script>alert" not in answer.text
        assert "60481729" not in answer.text
        assert "\u202e" not in answer.text
        assert shown.removesuffix("\\x07") in html.unescape(answer.text)


async def test_hostile_addresses_are_never_interpreted(rest: Rest, sample: Sample) -> None:
    names = ("filter", "contains", "orderingKey", "attribute", "value", "startTime", "endTime", "q", "pageToken")
    names += ("groupBy", "orderBy", "range", "paused", "resource", "principal", "permission")
    given = dict.fromkeys(names, f"{HOSTILE}'; touch x; '")
    for route in PAGES:
        answer = await page(rest, sample.page(route.path), params=given)
        assert answer.status_code in (200, 400), route.path
        assert "<script>alert" not in answer.text, route.path
        assert "60481729" not in answer.text, route.path
        assert answer.headers["content-security-policy"] == POLICY
        for command in commands_on(answer):
            assert is_one_command(command), (route.path, command)


@pytest.mark.parametrize("page_of_it", ["", "/messages", "/tail", "/tail/events"])
async def test_addresses_with_ids_that_no_resource_has_are_refused(rest: Rest, page_of_it: str) -> None:
    for id_ in ("x;touch y", "x'y", "$(touch y)"):
        answer = await page(rest, f"/console/{rest.project}/topics/{quote(id_)}{page_of_it}")
        assert answer.status_code == 404, id_
        assert not commands_on(answer)


def commands_on(answer: httpx.Response) -> list[str]:
    return [html.unescape(each) for each in re.findall(r'<pre class="command"><code>(.+?)</code>', answer.text)]


def is_one_command(line: str) -> bool:
    """Whether a shell takes a line as a single command without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    return not any(set(word) <= set(lexer.punctuation_chars) for word in lexer if word)


async def test_json_keeps_large_numbers_duplicate_keys_and_their_order(rest: Rest, sample: Sample) -> None:
    newest = (await rest.ok("GET", f"{rest.topic('orders')}/messages"))["messages"]
    [of_json] = [one["messageId"] for one in newest if "orderingKey" not in one]
    answer = await page(rest, f"/console/{rest.project}/messages/{of_json}?body=json")
    expected = '{\n  "order": 12345678901234567890,\n  "order": [\n    1,\n    {\n      "a": 1e400\n    }\n  ]\n}'
    assert expected in html.unescape(answer.text)


@pytest.mark.parametrize(
    "path", ["topics/none", "subscriptions/none", "messages/1000000000999999", "operations/none"]
)
async def test_a_page_of_something_that_does_not_exist_says_so(rest: Rest, path: str) -> None:
    answer = await page(rest, f"/console/{rest.project}/{path}")
    assert answer.status_code == 404
    assert "Not found" in answer.text
    assert answer.headers["content-security-policy"] == POLICY


async def test_a_search_says_how_far_it_has_got_and_goes_on_to_the_end(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="3600s")
    ids: list[str] = []
    for ten in range(0, 130, 10):
        batch = [message(f"order {n}", {"env.x": 'a"b' if n % 2 else "c"}) for n in range(ten, ten + 10)]
        ids += await rest.publish(*batch)
    wanted = set(ids[1::2])
    path, asked = f"/console/{rest.topic()}/messages", {"contains": "order", "attribute": "env.x", "value": 'a"b'}
    first = await page(rest, path, params=asked)
    assert "50 messages match so far." in first.text
    [searched] = re.findall(r"about ([0-9]+) of 130 messages", first.text)
    assert 50 <= int(searched) < 130
    found, address = ids_on(first), next_page(first)
    while address:
        answer = await page(rest, path + address)
        found += ids_on(answer)
        address = next_page(answer)
        last = answer.text
    assert sorted(found) == sorted(wanted)
    assert "Searched all of about 130 messages." in last
    nothing = await page(rest, path, params={**asked, "contains": "none"})
    assert "Nothing matches." in nothing.text


async def test_a_search_takes_times_without_a_zone_as_utc(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="3600s")
    [id_] = await rest.publish("one")
    path = f"/console/{rest.topic()}/messages"
    for asked, expected in (
        ({"startTime": "2020-01-01T00:00"}, [id_]),
        ({"startTime": "2020-01-01T00:00:00", "endTime": "2100-01-01T00:00:00Z"}, [id_]),
        ({"endTime": "2020-01-01T00:00"}, []),
    ):
        assert ids_on(await page(rest, path, params=asked)) == expected
    assert "startTime" in (await page(rest, path, params={"startTime": "noon"})).text


def ids_on(answer: httpx.Response) -> list[str]:
    return re.findall(r'<td class="mono id"><a href="[^"]+">(\d+)</a>', answer.text)


def next_page(answer: httpx.Response) -> str:
    found = re.findall(r'<a href="(\?[^"]*pageToken=[^"]+)"', answer.text)
    return html.unescape(found[0]) if found else ""


async def test_a_search_leads_to_the_messages_of_topics(rest: Rest) -> None:
    await rest.create_topic("orders")
    answer = await page(rest, f"/console/{rest.project}/search", params={"q": "user-1"})
    assert f'href="/console/{rest.topic("orders")}/messages?orderingKey=user-1"' in answer.text
    assert f'href="/console/{rest.topic("orders")}/messages?contains=user-1"' in answer.text


async def test_a_subscription_shows_its_keys_that_wait_and_its_endpoint(rest: Rest, sample: Sample) -> None:
    audit = await page(rest, f"/console/{rest.subscription('audit')}")
    assert "Keys that wait" in audit.text
    assert 'class="cursor"' in audit.text
    assert f"/messages/{sample.message_id}" in audit.text

    async def attempted() -> str:
        shown = (await page(rest, f"/console/{rest.subscription('billing')}")).text
        return shown if 'id="attempts"' in shown else ""

    billing = await eventually(attempted)
    assert "Failed" in billing
    assert "<td>503</td>" in billing


async def test_unknown_addresses_have_no_page(rest: Rest) -> None:
    for path in ("x", "projects", f"{rest.project}/none", f"{rest.project}/topics/t/none"):
        assert (await page(rest, f"/console/{path}")).status_code == 404, path


async def test_a_project_without_topics_says_how_to_begin(rest: Rest) -> None:
    answer = await page(rest, f"/console/{rest.project}")
    assert "There is nothing in this project yet." in answer.text
    assert "broker topic create" in answer.text


async def test_files_are_kept_for_good_and_have_another_address_once_they_change(rest: Rest) -> None:
    start = (await page(rest, "/console/")).text
    for name in re.findall(r'(?:href|src)="(/console/assets/[^"]+)"', start):
        answer = await page(rest, name)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert (await page(rest, "/console/assets/0000000000000000/console.css")).status_code == 404


async def test_pages_of_other_origins_cannot_read_the_console(rest: Rest) -> None:
    answer = await page(rest, "/console/", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"})
    assert answer.status_code == 403


async def test_viewing_pages_changes_nothing(rest: Rest, sample: Sample) -> None:
    async def delivery_states() -> list[Json]:
        found = await rest.ok("GET", f"{rest.project}/messages/{sample.message_id}")
        return [one for one in found["subscriptions"] if one["subscription"] != rest.subscription("billing")]

    before = await delivery_states()
    for route in PAGES:
        await page(rest, sample.page(route.path))
    assert await delivery_states() == before


class RecordingApi(Api):
    """The API, which notes the calls that a page makes."""

    def __init__(self, rest: RestApi) -> None:
        super().__init__(rest)
        self.called: list[str] = []

    async def send(
        self,
        viewer: Viewer,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Mapping[str, str | int] | None = None,
    ) -> Json:
        parts, colon, verb = path.partition(":")
        shape = "/".join("*" if index % 2 else part for index, part in enumerate(parts.split("/")))
        shape = parts if parts.startswith("broker/") else shape  # it names no resource
        found = [route for route in ROUTES if (route.method, route.path) == (method, shape + colon + verb)]
        self.called.append(found[0].rpc.name)
        return await super().send(viewer, method, path, body=body, query=query)


@pytest.mark.own_broker
async def test_pages_make_the_calls_that_they_name(broker: Broker, rest: Rest, push_sink: PushSink) -> None:
    """A page of a subscription makes other calls for one that is pulled from, and for one with keys that wait."""
    sample = await fill(rest, push_sink)
    for route in PAGES:
        called = set[str]()
        for name in ("billing", "audit") if "{subscription}" in route.path else ("billing",):
            api = RecordingApi(for_port(broker)[HTTP1_API])
            await route.make(_view(broker, api, route.path, sample, name))
            assert len(api.called) <= budget_of(route.path).calls, (route.path, api.called)
            called |= set(api.called)
        assert called | IF_NEEDED.get(route.path, set()) == set(route.rpcs), route.path


# Calls that a page makes only if others say that there is something to read.
IF_NEEDED = {
    "projects/{project}": {"ListProjectDeadLetters"},
    "projects/{project}/subscriptions/{subscription}": {"ListDeadLetters"},
    "projects/{project}/messages/{message}": {"DecodeMessage"},
    "projects/{project}/topics/{topic}/messages/{message}": {"DecodeMessage"},
}


def _view(broker: Broker, api: Api, path: str, sample: Sample, subscription: str) -> View:
    parts = {**_parts(path, sample), **({"subscription": subscription} if "{subscription}" in path else {})}
    return View(api=api, viewer=Viewer(), parts=parts, query=QUERY, now=broker.core.clock.now())


def _parts(path: str, sample: Sample) -> Mapping[str, str]:
    return {name: value for name, value in sample.ids.items() if f"{{{name}}}" in path}


@pytest.mark.own_broker(console="off")
async def test_the_console_is_off_where_the_settings_say_so(rest: Rest) -> None:
    assert (await page(rest, "/console/")).status_code == 404


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"console": "auto", "host": "127.0.0.1"}, True),
        ({"console": "auto", "host": "localhost"}, True),
        ({"console": "auto", "host": "::1"}, True),
        ({"console": "auto", "host": "0.0.0.0"}, False),
        ({"console": "auto", "host": "broker.example.com"}, False),
        ({"console": "auto", "host": "0.0.0.0", "auth": "required"}, True),
        ({"console": "on", "host": "0.0.0.0"}, True),
        ({"console": "off", "host": "127.0.0.1", "auth": "required"}, False),
    ],
)
def test_the_console_is_served_where_nobody_else_reaches_it_or_callers_sign_in(
    settings: Mapping[str, str], expected: bool
) -> None:
    from broker.app.config import AppConfig

    assert AppConfig(database_url="", **settings).has_console is expected


async def test_topics_are_shown_with_the_figures_of_the_list(rest: Rest, sample: Sample) -> None:
    async def is_sampled() -> bool:
        listed = (await rest.ok("GET", f"{rest.project}/topics?view=STATS"))["topics"]
        worst = [each["stats"]["worstSubscription"]["deliveryState"] for each in listed]
        return "NOT_SAMPLED" not in worst

    await eventually(is_sampled)
    shown = (await page(rest, f"/console/{rest.project}/topics")).text
    [orders] = [row for row in shown.split("<tr>") if f'{rest.topic("orders")}"' in row]
    assert re.search(r'data-label="retained">about 3<', orders)
    assert re.search(r'data-label="subscriptions">3<', orders)
    assert re.search(r'<span class="state \w+">.*subscriptions/(mail|audit|billing)"', orders, re.DOTALL)


async def test_marks_are_lines_in_charts_and_are_listed_with_events(rest: Rest, sample: Sample) -> None:
    shown = str(escape(HOSTILE.replace("\u202e", "\\u202e").replace("\x07", "\\x07")))
    for path in (rest.project, rest.topic("orders"), rest.subscription("billing")):
        text = (await page(rest, f"/console/{path}")).text
        assert re.search(r'<path class="mark" d="M[\d.]+ 0V64"[^>]*><title>[^<]*' + re.escape(shown), text), path
        assert f"{shown}</li>" in text, path
    for path in ("", "/activity"):
        text = (await page(rest, f"/console/{rest.project}{path}")).text
        assert re.search(f'<td class="long">{re.escape(shown)} <span class="attribute">release=7</span>', text), (
            path
        )
    assert '<path class="mark"' not in (await page(rest, "/console/projects/empty-project")).text


async def test_a_message_has_the_links_of_its_project_and_is_shown_by_its_schema(rest: Rest) -> None:
    schema = {
        "type": "AVRO",
        "definition": '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}',
    }
    await rest.ok("POST", f"{rest.project}/schemas", schema, params={"schemaId": "number"})
    settings = {"schema": f"{rest.project}/schemas/number", "encoding": "BINARY"}
    await rest.create_topic("coded", schemaSettings=settings, messageRetentionDuration="600s")
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    attributes = {"googclient_traceparent": trace, "order": '"><script>'}
    [message_id] = await rest.publish({"data": "VA==", "attributes": attributes}, topic="coded")
    url = "https://traces.example.com/{traceId}?o={attributes.order}"
    await rest.ok("PUT", f"{rest.project}/linkTemplates/traces", {"title": "Trace", "url": url})
    path = f"/console/{rest.topic('coded')}/messages/{message_id}"
    shown = await page(rest, path)
    link = "https://traces.example.com/0af7651916cd43dd8448eb211c80319c?o=%22%3E%3Cscript%3E"
    assert f'<a href="{link}" rel="noreferrer">Trace</a>' in shown.text
    assert '<a href="?body=decoded">By schema</a>' in shown.text
    decoded = await page(rest, f"{path}?body=decoded")
    assert '{\n  "n": 42\n}' in html.unescape(decoded.text)
    assert 'id="masked"' not in decoded.text


async def test_a_schedule_says_when_it_publishes(rest: Rest) -> None:
    await rest.create_topic("orders")
    fields = {"topic": rest.topic("orders"), "message": {"data": "YQ=="}}
    cron = {"schedule": "0 2 * * 1", "timeZone": "Europe/Berlin"}
    await rest.ok("PUT", f"{rest.project}/schedules/weekly", fields | cron)
    await rest.ok("PUT", f"{rest.project}/schedules/hourly", fields | {"interval": "3600s"})
    found = await page(rest, f"/console/{rest.project}/schedules")
    assert "0 2 * * 1 Europe/Berlin" in found.text
    assert "every 1h" in found.text
    assert "0 2 * * 1 Europe/Berlin" in (await page(rest, f"/console/{rest.project}/schedules/weekly")).text
