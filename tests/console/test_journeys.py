"""What people come to the console for, each journey with the number of actions and pages that it may take.

What a page shows is compared with what a command prints.  Each journey works without scripts, too.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable

import pytest
from playwright.async_api import Browser, Page, expect

from broker.cli.main import main
from broker.client.words import leaf
from broker.console.states import of_message, of_subscription
from tests.console.chromium import IN_CHROMIUM, Visitor, printed, visiting
from tests.fixtures.broker import BrokerProcess, Json, Rest, eventually, message
from tests.fixtures.push_sink import PushSink

pytestmark = [*IN_CHROMIUM, pytest.mark.ci, pytest.mark.timeout(300)]

KEY = "user-4711"
ACTIVE = ("critical", "warning", "paused")


@pytest.fixture(params=[True, False], ids=["with scripts", "without scripts"])
async def visitor(request: pytest.FixtureRequest, rest: Rest, browser: Browser) -> AsyncIterator[Visitor]:
    base = str(rest.client.base_url).rstrip("/")
    async with visiting(browser, base, java_script_enabled=request.param) as visitor:
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
            assert sentence.startswith(one["verdict"])
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
        await expect(link).to_be_visible(timeout=60_000)
        await visitor.click(link)
        await page.wait_for_url(f"**/messages/{message_id}")
        await expect(page.locator("#deliveries")).to_contain_text("Waiting")
        await rest.acknowledge(await rest.pull("mail"), "mail")
        await expect(page.locator("#deliveries")).to_contain_text("Acknowledged", timeout=60_000)
        assert (visitor.actions, visitor.requests) == (1, 1)
        [report] = (await printed(rest, "message", "show", message_id))["subscriptions"]
        assert report["verdict"] in await text_of(page, "#deliveries")


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
        await expect(page.locator("#figures")).to_contain_text(re.compile(r"subscriptions\s*1"), timeout=60_000)
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
        assert said["resourceName"] in row
    assert "ModifyPushConfig" in rows[0]
