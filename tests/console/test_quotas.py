"""The page of quotas, and the action that sets a limit."""

import html
import json
import re

import pytest

from broker.app.broker import Broker
from broker.console.rates import Rate
from tests.console.test_actions import act, hidden, look, note, receipt
from tests.fixtures.access import guarded
from tests.fixtures.broker import Rest, eventually, message

FEW = {"quota": "publishMessages", "limit": "3"}


def form(rest: Rest) -> str:
    return f"/console/{rest.project}:setQuota"


def changes(page: str) -> list[tuple[str, str]]:
    return re.findall(r"<(ins|del)><span[^>]*>.*?</span>(.*?)</", page)


def notes(page: str) -> str:
    found = re.search(r'<ul class="plain" id="notes">(.*?)</ul>', page, re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", "", found[1])) if found else ""


async def test_a_limit_is_set_with_the_one_before_beside_it_and_taken_back(rest: Rest) -> None:
    page = await look(rest.client, form(rest), FEW)
    assert changes(page.text) == [
        ("del", "publishMessages: the broker&#39;s default"),
        ("ins", "publishMessages: at most 3 messages a second"),
    ]
    done = await act(rest.client, form(rest), FEW)
    assert receipt(done) == f"Set publishMessages of {rest.project.removeprefix('projects/')} to 3."
    assert (await rest.ok("GET", f"{rest.project}/quotas"))["limits"] == {"publishMessages": 3}
    shown = await rest.client.get(done.headers["location"])
    [undo] = re.findall(r'href="([^"]*setQuota[^"]*)">Undo<', shown.text)
    back = await rest.client.get(html.unescape(undo))
    assert changes(back.text)[1] == ("ins", "publishMessages: the broker&#39;s default")
    same = await look(rest.client, form(rest), FEW)
    assert "Nothing would change." in same.text
    assert "Change the limit</button>" not in same.text


async def test_a_limit_of_each_principal_is_set_beside_that_of_the_project(rest: Rest) -> None:
    assert (await act(rest.client, form(rest), {**FEW, "principals": "on"})).status_code == 303
    assert (await act(rest.client, form(rest), {"quota": "topics", "limit": "none"})).status_code == 303
    quotas = await rest.ok("GET", f"{rest.project}/quotas")
    assert (quotas["limits"], quotas["principalLimits"]) == ({"topics": -1}, {"publishMessages": 3})
    page = await rest.client.get(f"/console/{rest.project}/quotas")
    assert 'id="principals"' in page.text


async def test_a_limit_that_somebody_else_has_changed_is_shown_again(rest: Rest) -> None:
    page = await look(rest.client, form(rest), FEW)
    await rest.ok("PATCH", f"{rest.project}/quotas", {"limits": {"publishMessages": 9}})
    refused = await rest.client.post(form(rest), data={**FEW, **hidden(page.text)})
    assert refused.status_code == 409, refused.text
    assert note(refused.text).startswith("Nothing was done: it has changed since it was shown.")
    assert changes(refused.text)[0] == ("del", "publishMessages: at most 9 messages a second")
    assert (await rest.ok("GET", f"{rest.project}/quotas"))["limits"] == {"publishMessages": 9}
    unseen = await rest.client.post(form(rest), data=FEW)
    assert (unseen.status_code, note(unseen.text)) == (400, "Look at what this would do first; nothing was done.")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"quota": "publishMessages", "limit": "many"}, "Limit must be a whole number of at most 16 digits"),
        ({"quota": "publishMessages", "limit": "9" * 5000}, "Limit must be a whole number of at most 16 digits"),
        ({"quota": "publishMessages", "limit": "-1"}, "Limit must be a whole number of at most 16 digits"),
        ({"quota": "publishMessages", "limit": "9" * 16}, "limits.publishMessages must be from 0 to"),
        ({"quota": "nothing", "limit": "1"}, "Quota must be one of publishRequests, "),
        ({"quota": "topics", "limit": "1", "principals": "on"}, "principalLimits.topics is no quota"),
    ],
)
async def test_limits_that_cannot_be_are_refused(rest: Rest, typed: dict[str, str], said: str) -> None:
    shown = hidden((await look(rest.client, form(rest), FEW)).text)
    refused = await rest.client.post(form(rest), data={**typed, **shown})
    assert refused.status_code == 400, refused.text
    assert note(refused.text).startswith(said)
    assert (await rest.ok("GET", f"{rest.project}/quotas"))["limits"] == {}


def test_what_was_above_a_limit_is_added_up_by_period() -> None:
    found = Rate(10.0, {"a": 50.0, "b": 10.0, "c": 30.0})
    assert (found.highest, found.highest_at) == (5.0, "a")
    assert found.excess(2) == (40.0, 90.0, 2)
    assert found.excess(5) == (0, 90.0, 0)


@pytest.mark.own_broker(console="on")
async def test_a_limit_says_what_it_would_have_refused_and_what_it_has_refused(rest: Rest, broker: Broker) -> None:
    await rest.create_topic()
    await rest.publish(*(message(str(number)) for number in range(100)))
    await rest.ok("PATCH", f"{rest.project}/quotas", {"limits": {"publishMessages": 3}})

    async def refused() -> bool:
        answer = await rest.call("POST", f"{rest.topic()}:publish", {"messages": [message("late")] * 100})
        return answer.status_code == 429

    await eventually(refused)
    close = broker.features["history"].close
    assert close is not None
    await close()  # writes what was counted
    few = notes((await look(rest.client, form(rest), FEW)).text)
    assert "of the last hour were above the new limit, in " in few
    assert "The busiest ten seconds of the last hour, until " in few
    assert "1 publish request was refused in the last hour" in few
    enough = await look(rest.client, form(rest), {**FEW, "limit": "1000"})
    assert "Nothing that was published in the last hour was above the new limit." in notes(enough.text)
    topics = await look(rest.client, form(rest), {"quota": "topics", "limit": "1"})
    assert "There are as many topics already" in notes(topics.text)
    quotas = await rest.client.get(f"/console/{rest.project}/quotas")
    assert '<a href="#refused">refused publishes in the last hour</a>' in quotas.text
    assert "publishMessages allows 3 messages a second" in quotas.text
    assert f'href="/console/{rest.topic()}"' in quotas.text


async def test_only_those_who_may_above_projects_set_limits(database_url: str) -> None:
    """An owner of the project may not, by hand either; the page says which permission is missing, and where."""
    async with guarded(database_url, console="auto") as world:
        address = f"/console/{world.project}:setQuota"
        owner = await world.account("owner-of-it", role="roles/owner")
        await world.client.post("/console/login", data={"credential": json.dumps(await world.key(owner))})
        page = await world.client.get(f"/console/{world.project}/quotas")
        assert ":setQuota" not in page.text
        assert "<code>serviceusage.quotas.update</code> above projects" in page.text
        assert (
            "It requires <code>serviceusage.quotas.update</code> above projects."
            in (await look(world.client, address, FEW)).text
        )
        refused = await world.client.post(address, data={**FEW, "etag": "AAAA"})
        assert refused.status_code == 403, refused.text
        assert (await world.ok("GET", f"{world.project}/quotas"))["limits"] == {}
        await world.client.post("/console/login", data={"credential": json.dumps(world.admin)})
        page = await world.client.get(f"/console/{world.project}/quotas")
        assert f'href="/console/{world.project}:setQuota?quota=publishMessages' in page.text
        assert (await act(world.client, address, FEW)).status_code == 303
        assert (await world.ok("GET", f"{world.project}/quotas"))["limits"] == {"publishMessages": 3}
