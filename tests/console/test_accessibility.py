"""Pages and forms by axe, and by the policy that they are served with, as different people see them."""

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser

from broker.console.actions.table import ACTIONS
from broker.console.routes import PAGES
from tests.console.chromium import CSP_EVENTS, IN_CHROMIUM
from tests.console.sample import Sample
from tests.console.test_browser import OTHER_PAGES
from tests.fixtures.broker import Rest

pytestmark = [*IN_CHROMIUM, pytest.mark.timeout(600)]
LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "has_touch": True},
    "forced colours": {"forced_colors": "active"},
}
IN_CI = {"dark", "phone"}
MARKED = [pytest.param(look, marks=[pytest.mark.ci] if look in IN_CI else []) for look in LOOKS]
FORMS = [action.path for action in ACTIONS if "scheduled" not in action.on]


@pytest.mark.parametrize("look", MARKED)
@pytest.mark.parametrize("paths", [[*(route.path for route in PAGES), *OTHER_PAGES], FORMS], ids=["pages", "forms"])
async def test_no_page_has_an_accessibility_problem_or_breaks_the_policy(
    rest: Rest, sample: Sample, browser: Browser, paths: list[str], look: str
) -> None:
    """Axe is injected, so its pages do without the policy; the others report each violation."""
    strict = await browser.new_context(**LOOKS[look])  # type: ignore[arg-type]
    await strict.add_init_script(CSP_EVENTS)
    page, errors = await strict.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    relaxed = await (await browser.new_context(bypass_csp=True, **LOOKS[look])).new_page()  # type: ignore[arg-type]
    base = str(rest.client.base_url).rstrip("/")
    for address in [base + sample.page(path) for path in paths]:
        await page.goto(address)
        assert await page.evaluate("window.violations") == [], address
        width = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], (address, width)
        assert await page.evaluate("document.querySelectorAll('*').length") <= 3_000, address
        await relaxed.goto(address)
        found = await Axe().run(relaxed)
        problems = [(one["id"], [node["html"] for node in one["nodes"]]) for one in found.response["violations"]]
        assert problems == [], address
    assert errors == []
