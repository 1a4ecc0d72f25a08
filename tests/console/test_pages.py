"""Pages show what the API answers to their viewer, and nothing on them runs."""

import asyncio
import html
import re
import shlex
from collections.abc import Mapping

import httpx
import pytest

from broker.api.rest.app import RestApi
from broker.app.asgi import for_port
from broker.app.broker import Broker
from broker.cli.main import main
from broker.console.api import Api, Json, Viewer
from broker.console.page import View
from broker.console.render import POLICY
from broker.console.routes import PAGES
from broker.net.first_bytes import HTTP1_API
from tests.console.sample import HOSTILE, Sample, fill
from tests.fixtures.broker import Rest
from tests.fixtures.push_sink import PushSink
from tests.fixtures.registered import ROUTES

# What the pages of searching and of access are asked; the others take no notice.
QUERY = {"q": "orders", "principal": "user:ana@example.com", "permission": "pubsub.topics.publish"}


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
        commands = [
            html.unescape(each) for each in re.findall(r'<pre class="command"><code>(.+?)</code>', answer.text)
        ]
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
    for path in (f"{rest.project}/messages/{sample.message_id}", f"{rest.topic('orders')}/messages"):
        answer = await page(rest, f"/console/{path}")
        assert "<script>alert" not in answer.text
        assert "60481729" not in answer.text
        assert "\u202e" not in answer.text
        assert shown in html.unescape(answer.text)


async def test_json_keeps_large_numbers_duplicate_keys_and_their_order(rest: Rest, sample: Sample) -> None:
    newest = (await rest.ok("GET", f"{rest.topic('orders')}/messages"))["messages"]
    [of_json] = [one["messageId"] for one in newest if one["messageId"] != sample.message_id]
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
        self.called: set[str] = set()

    async def _call(self, viewer: Viewer, method: str, path: str, *, query: str = "", body: bytes = b"") -> Json:
        parts, colon, verb = path.partition(":")
        shape = "/".join("*" if index % 2 else part for index, part in enumerate(parts.split("/")))
        shape = parts if parts.startswith("broker/") else shape  # it names no resource
        found = [route for route in ROUTES if (route.method, route.path) == (method, shape + colon + verb)]
        self.called.add(found[0].rpc.name)
        return await super()._call(viewer, method, path, query=query, body=body)


@pytest.mark.own_broker
async def test_pages_make_the_calls_that_they_name(broker: Broker, rest: Rest, push_sink: PushSink) -> None:
    sample = await fill(rest, push_sink)
    for route in PAGES:
        api = RecordingApi(for_port(broker)[HTTP1_API])
        view = View(api=api, viewer=Viewer(), parts=_parts(route.path, sample), query=QUERY)
        await route.make(view)
        assert api.called == set(route.rpcs), route.path


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
