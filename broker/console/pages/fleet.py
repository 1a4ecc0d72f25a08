"""The broker itself: its findings, processes, database and settings.  For operators."""

import asyncio

from broker.console.checks import sentence_of
from broker.console.page import Command, Page, PageRoute, View
from broker.console.states import State

_STATES = {
    "ERROR": State("Critical", "critical"),
    "WARNING": State("Warning", "warning"),
    "UNKNOWN": State("Unknown", "idle"),
    "OK": State("OK", "ok"),
}


async def fleet(view: View) -> Page:
    findings, processes, database, settings = await asyncio.gather(
        view.get("broker/findings"),
        view.block("broker/processes"),
        view.block("broker/database"),
        view.block("broker/settings"),
    )
    found = [(one, _STATES[one["severity"]], sentence_of(one)) for one in findings.get("findings", [])]
    return Page(
        template="fleet.html",
        title="Broker",
        commands=[
            Command("broker fleet findings", "broker/findings"),
            Command("broker fleet processes", "broker/processes"),
            Command("broker fleet database", "broker/database"),
            Command("broker fleet settings", "broker/settings"),
        ],
        data={
            "findings": sorted(found, key=lambda each: each[1].rank),
            "processes": processes,
            "database": database,
            "settings": settings,
        },
    )


PAGES = [
    PageRoute(
        "broker",
        fleet,
        ["Broker.ListFindings", "Broker.ListProcesses", "Broker.GetDatabase", "Broker.ListSettings"],
    )
]
