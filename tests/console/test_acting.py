"""Journeys that act, in a real browser."""

import asyncio
from collections.abc import Callable

import httpx
import pytest
from playwright.async_api import Browser, Page, Route, expect

from broker.db.driver.database import Database
from tests.console.chromium import IN_CHROMIUM
from tests.console.dead_letters import make_dead_letters
from tests.fixtures.broker import BrokerProcess, Rest, eventually, message, text
from tests.interleavings.steps import execute, open_transaction, until_waiting

pytestmark = [*IN_CHROMIUM, pytest.mark.ci]
COUNT = 300  # of dead letters


async def open_page(browser: Browser, rest: Rest, path: str, *, scripts: bool = True) -> Page:
    context = await browser.new_context(java_script_enabled=scripts)
    page = await context.new_page()
    await page.goto(str(rest.client.base_url).rstrip("/") + "/console/" + path)
    return page


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_dead_letters_are_redriven_from_their_page(rest: Rest, browser: Browser, scripts: bool) -> None:
    """Two presses: the button of the page, and the one that says how many."""
    await make_dead_letters(rest, [str(number) for number in range(COUNT)])
    page = await open_page(browser, rest, f"{rest.subscription('worker')}/deadLetters", scripts=scripts)
    await page.get_by_role("link", name="Redrive dead letters").click()
    button = page.get_by_role("button", name=f"Redrive {COUNT} messages")
    await button.click()
    await page.wait_for_url("**/operations/*")
    await expect(page.locator("#receipt")).to_contain_text("Redriving dead letters of worker.")
    operation = page.url.partition("/console/")[2]
    done = await rest.ok("POST", f"{operation}:wait", {"timeout": "60s"})
    assert done["metadata"]["done"] == str(COUNT)
    assert len(await rest.drain("worker")) == COUNT


async def test_a_seek_is_previewed_while_one_types_and_undone(rest: Rest, browser: Browser) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("a", "b", "c")
    page = await open_page(browser, rest, f"{rest.subscription()}")
    await page.get_by_role("link", name="Seek: replay or skip").click()
    await page.get_by_label("To the time").fill("now")
    await page.get_by_role("button", name="Seek: 3 messages").click()
    receipt = page.locator("#receipt")
    await expect(receipt).to_contain_text("Moved sub")
    assert await rest.pull() == []
    await receipt.get_by_role("link", name="Undo").click()
    await page.get_by_role("button", name="Undo it").click()
    await expect(receipt).to_contain_text("3 messages will be delivered again")
    assert sorted(text(one["message"]) for one in await rest.drain()) == ["a", "b", "c"]


async def test_a_receipt_stays_while_its_page_is_kept_up_to_date(rest: Rest, browser: Browser) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    page = await open_page(browser, rest, f"{rest.subscription()}:purge")
    await page.get_by_role("button", name="Purge").click()
    receipt, as_of = page.locator("#receipt"), page.locator(".asof time")
    await expect(receipt).to_be_visible()
    shown = await as_of.get_attribute("datetime")

    async def is_newer() -> bool:
        await page.keyboard.press("r")  # which reads the page now
        return await as_of.get_attribute("datetime") != shown

    await eventually(is_newer)
    await expect(receipt).to_be_visible()
    await expect(receipt.get_by_role("link", name="Undo")).to_be_visible()


async def test_the_answer_to_an_action_is_not_read_anew(rest: Rest, browser: Browser) -> None:
    """The page of its address is another one: the form, without what was answered."""
    await rest.create_topic()
    await rest.create_subscription()
    page = await open_page(browser, rest, f"{rest.project}/topics")
    await page.clock.install()
    await page.goto(page.url.replace("/topics", "/subscriptions/sub"))
    async with page.expect_request(page.url):
        await page.clock.run_for(10_000)
    await page.get_by_role("button", name="Undo the last seek or purge").click()
    await expect(page.get_by_role("main")).to_contain_text("There is no seek to undo")
    read = list[str]()
    page.on("request", lambda request: read.append(request.url))
    await page.wait_for_load_state("networkidle")
    read.clear()
    await page.clock.run_for(60_000)
    assert read == []


async def test_an_action_whose_answer_is_lost_is_not_repeated(
    rest: Rest,
    browser: Browser,
) -> None:
    """The broker does what it was asked, and its answer never comes."""
    await rest.create_topic()
    await rest.create_subscription()
    page = await open_page(browser, rest, f"{rest.topic()}:publish")
    sent = list[str]()

    async def lose(route: object) -> None:
        assert hasattr(route, "fetch")
        await route.fetch()
        sent.append("POST")
        await route.abort()  # type: ignore[attr-defined]

    await page.route("**/*:publish", lose)
    await page.get_by_label("Body", exact=True).fill("once")
    await page.get_by_role("button", name="Publish the message").click()
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text("The result is not known")
    await expect(alert.get_by_role("link", name="activity")).to_be_visible()
    await expect(page.get_by_role("button", name="Publish the message")).to_be_disabled()
    await expect(page.get_by_label("Body", exact=True)).to_have_value("once")
    assert sent == ["POST"]
    assert [text(one["message"]) for one in await rest.drain()] == ["once"]


async def test_a_button_that_acts_at_once_says_if_its_answer_is_lost_or_a_refusal(
    rest: Rest, browser: Browser
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.ok("POST", f"{rest.subscription()}:pause", {})
    page, sent = await open_page(browser, rest, rest.subscription()), list[str]()

    async def lose(route: Route) -> None:
        await route.fetch()
        sent.append(route.request.method)
        await route.abort()

    await page.route("**/*:resume", lose)
    await page.get_by_role("button", name="Resume", exact=True).click()
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text("The result is not known")
    await expect(alert.get_by_role("link", name="activity")).to_be_visible()
    assert sent == ["POST"]
    assert "pause" not in await rest.ok("GET", rest.subscription())
    await page.goto(page.url)
    await page.get_by_role("button", name="Undo the last seek or purge").click()
    await expect(page.get_by_role("alert")).to_contain_text("undo")
    assert page.url.endswith(":undoSeek")
    await expect(page.get_by_role("button", name="Undo it")).to_be_visible()


@pytest.mark.timeout(300)
async def test_the_result_of_an_action_is_unknown_if_the_broker_is_killed_before_it_answers(
    start_broker: Callable[..., BrokerProcess], database_url: str, database: Database, browser: Browser
) -> None:
    """The rows that it needs are locked, so it is under way when the broker is killed."""
    broker = start_broker("--database-url", database_url, "--port", "0", "--console", "on")
    port = broker.url.rpartition(":")[2].rstrip("/")
    async with httpx.AsyncClient(base_url=broker.url) as client:
        rest = Rest(client, "projects/killed")
        await rest.create_topic()
        await rest.create_subscription()
        page, posts = await open_page(browser, rest, f"{rest.subscription()}:pause"), list[str]()
        page.on("request", lambda request: posts.append(request.url) if request.method == "POST" else None)
        await page.get_by_label("Reason").fill("incident")
        async with open_transaction(database) as session:
            await execute(session, "LOCK TABLE subscriptions IN ACCESS EXCLUSIVE MODE")
            await page.get_by_role("button", name="Pause the subscription").click()
            await until_waiting(database)
            await asyncio.to_thread(broker.kill)
            alert = page.get_by_role("alert")
            await expect(alert).to_contain_text("The result is not known")
        await expect(alert.get_by_role("link", name="operations")).to_be_visible()
        await expect(alert.get_by_role("link", name="activity")).to_be_visible()
        await expect(page.get_by_role("button", name="Pause the subscription")).to_be_disabled()
        await expect(page.get_by_label("Reason")).to_have_value("incident")
        start_broker("--database-url", database_url, "--port", port, "--console", "on")
        was_paused = "pause" in await rest.ok("GET", rest.subscription())
        await page.clock.install()
        await page.clock.run_for(60_000)  # what the page does by itself it does within this
        assert len(posts) == 1
        assert ("pause" in await rest.ok("GET", rest.subscription())) == was_paused


async def test_what_is_refused_keeps_the_form(rest: Rest, browser: Browser) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    page = await open_page(browser, rest, f"{rest.subscription()}:update")
    await page.get_by_label("Labels").fill("team")
    await page.get_by_role("button", name="Change the settings").click()
    await expect(page.get_by_role("alert")).to_contain_text("Labels must be KEY=VALUE")
    await expect(page.get_by_label("Labels")).to_have_value("team")
    await page.get_by_label("Labels").fill("team=billing")
    await page.get_by_role("button", name="Change the settings").click()
    await expect(page.locator("#receipt")).to_contain_text("Changed the settings of sub.")
    assert (await rest.ok("GET", rest.subscription()))["labels"] == {"team": "billing"}


async def test_the_command_follows_what_one_types(rest: Rest, browser: Browser) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    page = await open_page(browser, rest, f"{rest.subscription()}:update")
    await page.get_by_label("Ack deadline").fill("90s")
    await expect(page.locator(".command")).to_contain_text("--ack-deadline 90")


async def test_a_frozen_topic_says_so_and_a_subscription_is_created_from_its_page(
    rest: Rest, browser: Browser
) -> None:
    await rest.create_topic()
    await rest.ok("POST", f"{rest.topic()}:freeze", {"reason": "It is migrated."})
    page = await open_page(browser, rest, rest.topic())
    await expect(page.locator("#frozen")).to_contain_text("It is migrated.")
    await page.get_by_role("link", name="Create a subscription").click()
    await expect(page.get_by_label("Topic required")).to_have_value("topic")


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_a_limit_is_changed_from_the_page_of_quotas_and_taken_back(
    rest: Rest, browser: Browser, scripts: bool
) -> None:
    await rest.ok("PATCH", f"{rest.project}/quotas", {"limits": {"publishMessages": 60}})
    page = await open_page(browser, rest, f"{rest.project}/quotas", scripts=scripts)
    await page.get_by_role("link", name="Change publishMessages").click()
    await expect(page.get_by_label("Limit required")).to_have_value("60")
    await page.get_by_label("Limit required").fill("600")
    if not scripts:
        await page.get_by_role("button", name="Show what it would do").click()
    await expect(page.locator(".changes")).to_contain_text("publishMessages: at most 600 messages a second")
    await page.get_by_role("button", name="Change the limit").click()
    await expect(page.locator("#receipt")).to_contain_text("Set publishMessages of")
    assert (await rest.ok("GET", f"{rest.project}/quotas"))["limits"] == {"publishMessages": 600}
    await page.locator("#receipt").get_by_role("link", name="Undo").click()
    await page.get_by_role("button", name="Change the limit").click()
    await expect(page.locator("#receipt")).to_contain_text("to 60.")
    assert (await rest.ok("GET", f"{rest.project}/quotas"))["limits"] == {"publishMessages": 60}


async def test_a_message_that_holds_up_its_key_is_released_from_the_page_of_the_subscription(
    rest: Rest, browser: Browser
) -> None:
    await rest.create_topic()
    await rest.create_subscription(enableMessageOrdering=True, ackDeadlineSeconds=600)
    [held, _] = await rest.publish(*(message(each, orderingKey="acct-9") for each in "ab"))
    assert len(await rest.pull(max_messages=1)) == 1
    page = await open_page(browser, rest, rest.subscription())
    await page.get_by_role("link", name=f"Release {held}").click()
    await expect(page.locator("#notes")).to_contain_text(held)
    await page.get_by_role("button", name="Release the messages").click()
    await expect(page.locator("#receipt")).to_contain_text("Messages of sub: 1 released.")
    assert [text(one["message"]) for one in await rest.drain()] == ["a", "b"]
