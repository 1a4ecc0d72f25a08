"""What people come to the console for, each journey with the number of actions and pages that it may take.

What a page shows is compared with what a command prints.  Each journey works without scripts, too.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable

import pytest
from playwright.async_api import Browser, Page, expect

from broker.cli.main import main
from broker.client.words import leaf
from broker.console.states import of_message, of_subscription
from tests.console.chromium import IN_CHROMIUM, Visitor, printed, visiting
from tests.console.dead_letters import make_dead_letters
from tests.fixtures.access import guarded
from tests.fixtures.broker import BrokerProcess, Json, Rest, eventually, message, text
from tests.fixtures.push_sink import PushSink

pytestmark = [*IN_CHROMIUM, pytest.mark.ci, pytest.mark.timeout(300)]

KEY = "user-4711"
ACTIVE = ("critical", "warning", "paused")


@pytest.fixture(params=[True, False], ids=["with scripts", "without scripts"])
async def visitor(request: pytest.FixtureRequest, rest: Rest, browser: Browser) -> AsyncIterator[Visitor]:
    base = str(rest.client.base_url).rstrip("/")
    async with visiting(browser, base, java_script_enabled=request.param) as visitor:
        visitor.has_scripts = request.param
        yield visitor


@pytest.fixture
async def stuck(rest: Rest, push_sink: PushSink) -> list[str]:
    """The ids of two messages of one key: `audit` fails with the first, `mail` has acknowledged both."""
    await rest.create_topic("orders")
    await rest.create_subscription("mail", topic="orders")
    await rest.create_subscription("audit", topic="orders", enableMessageOrdering=True, ackDeadlineSeconds=600)
    await rest.create_subscription("eu-only", topic="orders", filter='attributes.region = "eu"')
    await rest.create_subscription(
        "billing", topic="orders", pushConfig={"pushEndpoint": f"{push_sink.url}/status/503/{rest.project}"}
    )
    ids = await rest.publish(
        message('{"order": 1}', {"region": "us"}, orderingKey=KEY),
        message('{"order": 2}', {"region": "us"}, orderingKey=KEY),
        topic="orders",
    )
    await rest.acknowledge(await rest.pull("mail"), "mail")
    await rest.modify_ack_deadline(await rest.pull("audit", 1), 0, "audit")
    await rest.pull("audit", 1)
    return ids


async def until_sampled(rest: Rest, **states: str) -> list[Json]:
    """Wait until the lag board has these delivery states; return its rows."""

    async def rows() -> list[Json]:
        found = (await rest.ok("GET", f"{rest.project}/lag"))["subscriptions"]
        seen = {leaf(one["subscription"]): one["deliveryState"] for one in found}
        return list(found) if all(seen.get(name) == state for name, state in states.items()) else []

    found: list[Json] = await eventually(rows, seconds=120)
    return found


async def text_of(page: Page, selector: str) -> str:
    return " ".join((await page.locator(selector).inner_text()).split())


# --- 1: why did this message not arrive? --------------------------------------------------------------------


TIME = r"\d{4}-\d\d-\d\dT[\d:.]+Z"


def as_shown(sentence: str) -> re.Pattern[str]:
    """A sentence of the API on a page, where times are as the viewer reads them."""
    return re.compile(".+".join(map(re.escape, re.split(TIME, sentence))))


async def check_verdicts(rest: Rest, visitor: Visitor, message_id: str) -> None:
    await visitor.page.wait_for_url(f"**/messages/{message_id}")
    shown = {}
    for row in await visitor.page.locator("#deliveries tbody tr").all():
        cells = [" ".join(text.split()) for text in await row.locator("td").all_inner_texts()]
        shown[cells[0]] = cells[1:]
    found = await printed(rest, "message", "show", message_id)
    assert set(shown) == {leaf(one["subscription"]) for one in found["subscriptions"]}
    for one in found["subscriptions"]:
        word, attempt, sentence = shown[leaf(one["subscription"])]
        assert word == of_message(one["state"]).word
        if leaf(one["subscription"]) != "billing":  # whose endpoint is tried again and again
            assert attempt == str(one.get("deliveryAttempt", ""))
            assert as_shown(one["verdict"]).match(sentence), (sentence, one["verdict"])
    assert visitor.actions <= 1
    assert visitor.requests <= 2  # the search leads on to the message


async def test_1_an_id_that_is_searched_for_leads_to_what_became_of_the_message(
    rest: Rest, stuck: list[str], visitor: Visitor
) -> None:
    await visitor.open(f"/console/{rest.project}/topics")
    await visitor.search(stuck[1])
    await check_verdicts(rest, visitor, stuck[1])
    await expect(visitor.page.get_by_role("link", name=f"View {stuck[0]}")).to_be_visible()


async def test_1_an_id_is_searched_for_with_the_keyboard_alone(
    rest: Rest, stuck: list[str], browser: Browser
) -> None:
    async with visiting(browser, str(rest.client.base_url).rstrip("/")) as visitor:
        await visitor.open(f"/console/{rest.project}/topics")
        await visitor.search(stuck[1], with_keys=True)
        await check_verdicts(rest, visitor, stuck[1])


# --- 2: what is wrong now? ----------------------------------------------------------------------------------


async def test_2_the_overview_says_what_is_wrong_the_worst_first(
    rest: Rest, stuck: list[str], visitor: Visitor
) -> None:
    await until_sampled(rest, audit="BLOCKED_KEY", billing="ENDPOINT_FAILING", mail="CAUGHT_UP")
    await visitor.page.goto(f"{visitor.base}/console/{rest.project}")
    rows = [" ".join(text.split()) for text in await visitor.page.locator("#findings li").all_inner_texts()]
    assert (visitor.actions, visitor.requests) == (0, 1)
    wrong = {
        leaf(one["subscription"]): one
        for one in await printed(rest, "lag", "--sampled")
        if of_subscription(one["deliveryState"]).level in ACTIVE
    }
    assert len(wrong) == 2
    places = []
    for name, level in (("billing", "Endpoint fails"), ("audit", "Key blocked")):
        [place] = [place for place, row in enumerate(rows) if row.startswith(f"{level} {name} ")]
        places.append(place)
    assert places == sorted(places)
    assert wrong["audit"]["verdict"].partition(" is outstanding")[0] in rows[places[1]]
    assert "503" in rows[places[0]]
    await visitor.click(visitor.page.get_by_role("link", name="View message"))
    await visitor.page.wait_for_url(f"**/messages/{stuck[0]}")


# --- 7: which consumer is slow, which key is stuck? ---------------------------------------------------------


async def test_7_the_page_of_a_subscription_names_the_key_that_is_stuck_and_who_holds_it(
    rest: Rest, stuck: list[str], visitor: Visitor
) -> None:
    pulling = asyncio.create_task(rest.pull("audit", wait=True))  # a consumer that is there for the whole test
    # Consumers are known within five seconds.
    [consumer] = await eventually(lambda: printed(rest, "sub", "consumers", "audit"), seconds=100)
    await visitor.page.goto(f"{visitor.base}/console/{rest.subscription('audit')}")
    assert (visitor.actions, visitor.requests) == (0, 1)
    [found] = [one for one in await printed(rest, "lag") if one["subscription"] == rest.subscription("audit")]
    assert found["blockedKey"]["messageId"] == stuck[0]
    assert found["verdict"].partition(" is outstanding")[0] in await text_of(visitor.page, "#verdict")
    holder = visitor.page.get_by_role("link", name=stuck[0]).first
    await expect(holder).to_be_in_viewport()
    row = visitor.page.locator("#consumers tbody tr")
    await expect(row).to_have_count(1)
    assert str(consumer["outstandingMessages"]) in await row.inner_text()
    pulling.cancel()


# --- 8: find one message ------------------------------------------------------------------------------------


async def test_8_a_message_is_found_by_its_body_and_the_search_has_an_address(rest: Rest, visitor: Visitor) -> None:
    await rest.create_topic("orders", messageRetentionDuration="3600s")
    for start in range(0, 3_000, 1_000):
        await rest.publish(*(f'{{"order": {number:05}}}' for number in range(start, start + 1_000)), topic="orders")
    page = visitor.page
    await visitor.open(f"/console/{rest.topic('orders')}")
    await visitor.click(page.get_by_role("link", name="Messages", exact=True))
    await page.get_by_label("Body contains").fill('"order": 01234}')
    await visitor.click(page.get_by_role("button", name="Search"))
    await page.wait_for_url("**contains=**")
    assert (visitor.actions, visitor.requests) == (2, 2)
    found = []
    while True:  # a page says how far it has read, and goes on from there
        assert "earched" in await text_of(page, ".progress")
        found += await page.locator("#messages tbody tr td:first-child").all_inner_texts()
        following = page.get_by_role("link", name="Continue the search")
        if found or not await following.count():
            break
        await visitor.click(following)
    printed_ids = [
        one["messageId"]
        for one in await printed(rest, "topic", "browse", "orders", "--contains", '"order": 01234}')
    ]
    assert found == printed_ids
    await page.goto(page.url)
    assert await page.locator("#messages tbody tr td:first-child").all_inner_texts() == found


# --- 9: watch and try ---------------------------------------------------------------------------------------


async def test_9_a_message_that_is_published_appears_and_its_deliveries_are_followed(
    rest: Rest, browser: Browser
) -> None:
    await rest.create_topic("orders")
    await rest.create_subscription("mail", topic="orders")
    async with visiting(browser, str(rest.client.base_url).rstrip("/")) as visitor:
        page = visitor.page
        await visitor.open(f"/console/{rest.topic('orders')}")
        [message_id] = await rest.publish("hello", topic="orders")
        link = page.get_by_role("link", name=message_id)
        await expect(link).to_be_visible()
        await visitor.click(link)
        await page.wait_for_url(f"**/messages/{message_id}")
        await expect(page.locator("#deliveries")).to_contain_text("Waiting")
        await rest.acknowledge(await rest.pull("mail"), "mail")
        await expect(page.locator("#deliveries")).to_contain_text("Acknowledged")
        assert (visitor.actions, visitor.requests) == (1, 1)
        [report] = (await printed(rest, "message", "show", message_id))["subscriptions"]
        assert as_shown(report["verdict"]).search(await text_of(page, "#deliveries"))


# --- 10: first five minutes ---------------------------------------------------------------------------------


async def test_10_a_new_broker_prints_its_console_which_leads_to_the_first_message(
    start_broker: Callable[..., BrokerProcess], database_url: str, browser: Browser
) -> None:
    broker = start_broker("--database-url", database_url, "--port", "0")
    [address] = await eventually(
        lambda: [line.split()[-1] for line in broker.log if line.strip().startswith("Console: ")]
    )
    async with visiting(browser, broker.url) as visitor:
        page = visitor.page
        await page.goto(address)
        await page.get_by_label("Project id").fill("demo")
        await visitor.click(page.get_by_role("button", name="View project"))
        await page.wait_for_url("**/projects/demo")
        commands = await page.locator("#start pre.command code").all_inner_texts()
        assert len(commands) == 3
        for command in commands:
            arguments = command.split()[1:]
            assert await asyncio.to_thread(main, [*arguments, "--url", broker.url]) == 0, command
        await expect(page.locator("#figures")).to_contain_text(re.compile(r"subscriptions\s*1"))
        assert (visitor.actions, visitor.requests) == (1, 3)  # of which one redirects to the project


# --- 11: what changed before it broke? ----------------------------------------------------------------------


@pytest.mark.own_broker(audit="changes", console="on")
async def test_11_the_change_before_it_broke_is_a_click_away(rest: Rest, visitor: Visitor) -> None:
    await rest.create_topic("orders")
    await rest.create_subscription("mail", topic="orders")
    body = {"pushConfig": {"pushEndpoint": "http://127.0.0.1:9/"}}
    await rest.ok("POST", f"{rest.subscription('mail')}:modifyPushConfig", body)
    await visitor.open(f"/console/{rest.subscription('mail')}")
    await visitor.click(visitor.page.get_by_role("link", name="Activity"))
    await visitor.page.wait_for_url("**/activity**")
    assert (visitor.actions, visitor.requests) == (1, 1)
    rows = [" ".join(text.split()) for text in await visitor.page.locator("#activity tbody tr").all_inner_texts()]
    entries = await printed(rest, "audit")
    assert len(rows) == len(entries)
    for row, entry in zip(rows, entries, strict=True):
        said = entry["protoPayload"]
        assert leaf(said["methodName"]).rpartition(".")[2] in row
        assert said["resourceName"].removeprefix(f"{rest.project}/") in row
    assert "ModifyPushConfig" in rows[0]


# --- 4: handle a poison message -----------------------------------------------------------------------------


async def test_4_of_poison_messages_two_are_compared_one_is_mended_and_the_rest_discarded(
    rest: Rest, visitor: Visitor
) -> None:
    bodies = ['{"order": 1, "total": "12,50"}', '{"order": 2, "total": "9.90"}', '{"order": 3, "total": "7,00"}']
    await make_dead_letters(rest, [message(body, {"kind": "order"}) for body in bodies])
    page = visitor.page
    await visitor.open(f"/console/{rest.subscription('worker')}")
    await visitor.click(page.locator(".tabs").get_by_role("link", name="Dead letters"))
    await visitor.click(page.get_by_role("link", name="Compare two of reject"))
    assert await page.locator(".changes .goes").count() == await page.locator(".changes .comes").count() > 0
    assert "kind=order" not in await text_of(page, "main"), "they have the same attributes"
    edited = page.get_by_role("link", name="Edit").first
    message_id = (await edited.inner_text()).split()[-1]
    await visitor.click(edited)
    before = await page.get_by_label("New body").input_value()
    assert before in bodies
    after = before.replace('"order"', '"number"')
    await page.get_by_label("New body").fill(after)
    if visitor.has_scripts:
        await expect(page.locator("#preview ins")).to_contain_text(after)
        await expect(page.locator("#preview del")).to_contain_text(before)
    await visitor.click(page.get_by_role("button", name="Return the edited message"))
    await page.wait_for_url("**/deadLetters")
    await expect(page.locator("#receipt")).to_contain_text(f"Returned {message_id} to worker, edited")
    await visitor.click(page.get_by_role("link", name="Discard 2", exact=True))
    await page.get_by_label("Type worker to confirm").fill("worker")
    await visitor.click(page.get_by_role("button", name="Discard 2 messages"))
    await page.wait_for_url("**/deadLetters")
    await expect(page.locator("#receipt")).to_contain_text("Messages of worker: 2 discarded.")
    assert visitor.actions == 6
    assert visitor.requests <= 8  # without scripts an answer to a form leads on to the next page
    assert await printed(rest, "dlq", "list", "worker") == []
    assert [text(one["message"]) for one in await rest.drain("worker")] == [after]


# --- 6: restore a broken webhook ----------------------------------------------------------------------------


@pytest.mark.own_broker(min_delivery_attempts=1, dead_letter_interval_seconds=0.05, console="on")
async def test_6_a_webhook_is_tested_resumed_and_given_what_it_missed(
    rest: Rest, push_sink: PushSink, visitor: Visitor
) -> None:
    name, path = rest.subscription("billing"), f"/hook/{rest.project}/{visitor.has_scripts}"
    await push_sink.program(path, "/status/503")
    await rest.create_topic("orders", messageRetentionDuration="3600s")
    await rest.create_topic("morgue")
    await rest.create_subscription("reader", topic="morgue")
    await rest.create_subscription(
        "billing",
        topic="orders",
        pushConfig={"pushEndpoint": push_sink.url + path},
        extensions={"push": {"circuitBreaker": {"failureThreshold": 1, "openDuration": "1s"}}},
        deadLetterPolicy={"deadLetterTopic": rest.topic("morgue"), "maxDeliveryAttempts": 1},
    )
    await rest.publish("a", topic="orders")

    async def opened() -> str:
        breaker = (await rest.ok("GET", f"{name}:pushStatus"))["circuitBreaker"]
        return str(breaker["history"][-1]["changeTime"]) if breaker.get("history") else ""

    since = await eventually(opened, seconds=120)
    await rest.publish("b", "c", topic="orders")

    async def all_are_dead() -> bool:
        found = await rest.ok("GET", f"{name}/deadLetters")
        return len(found.get("deadLetters", ())) == 3

    await eventually(all_are_dead, seconds=120)
    await rest.ok("POST", f"{name}:pausePush", {"reason": "incident"})
    await push_sink.program(path, "/status/200")
    plan = await rest.ok("POST", f"{name}:recover", {"startTime": since, "validateOnly": True})
    count = int(plan["response"]["chosen"])
    assert count >= 2
    page = visitor.page
    await visitor.open(f"/console/{rest.project}/subscriptions")
    await visitor.click(page.get_by_role("link", name="billing", exact=True))
    await expect(page.locator("#failures tbody tr").first).to_contain_text("503")
    await visitor.click(page.get_by_role("button", name="Send a test push"))
    await expect(page.locator("#receipt")).to_contain_text("The endpoint answered 200")
    await visitor.click(page.get_by_role("button", name="Resume pushes"))
    await expect(page.locator("#receipt")).to_contain_text("Resumed the pushes of billing.")
    await visitor.click(page.get_by_role("link", name="Recover failed pushes"))
    await expect(page.get_by_label("Since")).to_have_value(since)
    await page.get_by_label("Messages a second, at most").fill("100")
    await visitor.click(page.get_by_role("button", name=f"Push {count} messages again"))
    await page.wait_for_url("**/operations/*")
    await expect(page.locator("#receipt")).to_contain_text("Recovering the pushes of billing.")
    assert visitor.actions == 5
    assert visitor.requests <= 8  # without scripts an answer to a form leads on to the next page
    operation = page.url.partition("/console/")[2]
    done = await rest.ok("POST", f"{operation}:wait", {"timeout": "60s"})
    assert (done["metadata"]["done"], done["metadata"]["verb"]) == (str(count), "recover")
    shown = await printed(rest, "op", "show", leaf(operation))
    assert shown["metadata"]["done"] == str(count)
    assert shown["metadata"]["request"]["maxMessagesPerSecond"] == 100


# --- 12: grant access, or find out why it is missing --------------------------------------------------------


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_12_a_role_is_given_a_link_is_made_and_a_missing_permission_is_explained(
    database_url: str, browser: Browser, scripts: bool
) -> None:
    async with guarded(database_url, console="on") as world:
        base, project = str(world.client.base_url).rstrip("/"), world.project
        hook = f"{project}/subscriptions/hook"
        await world.ok("PUT", f"{project}/topics/orders", {})
        push = {"pushConfig": {"pushEndpoint": "http://127.0.0.1:9/hook"}}
        await world.ok("PUT", hook, {"topic": f"{project}/topics/orders", **push})
        async with visiting(browser, base, java_script_enabled=scripts) as visitor:
            page = visitor.page
            await page.goto(f"{base}/console/login")
            await page.get_by_label("Key file").fill(json.dumps(world.admin))
            await page.get_by_role("button", name="Sign in").click()
            await page.wait_for_url(f"{base}/console/**")

            await visitor.open(f"/console/{hook}")
            await visitor.click(page.get_by_role("link", name="Give somebody a role"))
            await page.get_by_label("Principal").fill("user:ana@example.com")
            await page.get_by_label("Role").fill("roles/pubsub.viewer")
            if not scripts:
                await visitor.click(page.get_by_role("button", name="Show what it would do"))
            await expect(page.locator("#preview ins")).to_contain_text(
                "user:ana@example.com has roles/pubsub.viewer"
            )
            await visitor.click(page.get_by_role("button", name="Give the role"))
            await expect(page.locator("#receipt")).to_contain_text(
                "user:ana@example.com has roles/pubsub.viewer on hook"
            )
            assert visitor.actions == (2 if scripts else 3)
            policy = await world.ok("GET", f"{hook}:getIamPolicy")
            assert policy["bindings"] == [{"role": "roles/pubsub.viewer", "members": ["user:ana@example.com"]}]

            await visitor.open(f"/console/{hook}")
            await visitor.click(page.get_by_role("link", name="Pushes", exact=True))
            await visitor.click(page.get_by_role("link", name="Share the pushes by a link"))
            await page.get_by_label("Works for").fill("1h")
            await page.get_by_label("Its holder may recover failed pushes").check()
            await visitor.click(page.get_by_role("button", name="Create the link"))
            link = (await page.locator("#secret code").inner_text()).strip()
            assert visitor.actions == 3
            assert "#" not in page.url
            await _holder_sees(browser, base, link, hook)

            await visitor.open(f"/console/{hook}")
            await visitor.click(page.get_by_role("link", name="Access", exact=True))
            asked = {
                "principal": "user:ana@example.com",
                "permission": "pubsub.subscriptions.consume",
                "resource": "subscriptions/hook",
            }
            why = page.locator("form[action='#why']")
            for label, value in asked.items():
                await why.get_by_label(label.capitalize()).fill(value)
            await visitor.click(why.get_by_role("button", name="Explain"))
            assert visitor.actions == 2
            told = await world.ok("POST", f"{project}:explainAccess", {**asked, "resource": hook})
            await expect(page.locator(".verdict").first).to_contain_text(told["explanation"])
            await expect(page.locator(".verdict").first).to_contain_text("Not granted")


async def _holder_sees(browser: Browser, base: str, link: str, hook: str) -> None:
    """The link opens the page, with the button that it permits."""
    async with visiting(browser, base) as holder:
        await holder.page.goto(link)
        await expect(holder.page.get_by_role("heading", name="Pushes of hook")).to_be_visible()
        await holder.click(holder.page.get_by_role("link", name="Recover failed pushes"))
        await holder.page.get_by_label("Since").fill("1h")
        await expect(holder.page.locator("#preview")).to_contain_text("There is nothing to do.")
        assert holder.page.url.startswith(f"{base}/console/shared/{hook}/pushAttempts:recover")
