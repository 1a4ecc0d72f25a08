"""The limits of a project, and how much of each is used, now and in the last hour."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.console.api import Json
from broker.console.charts import HOUR
from broker.console.checks import NEAR_LIMIT, PUBLISH_QUOTAS, of_refused_publishes
from broker.console.page import Block, Page, PageRoute, View, list_page
from broker.console.rates import EXHAUSTED, LAST_HOUR, METRICS, Rate, amount, figure, rates_of
from broker.model.quota_names import RATES


class Row(NamedTuple):
    """A quota as the API has it, with its highest rate of the last hour ("": not known).

    `refuses`: it is why publishes of the last hour were refused, as far as that can be told.
    """

    quota: Json
    highest: str
    highest_at: str
    refuses: bool


class Limit(NamedTuple):
    """A limit of each principal, and the principal that uses most of it now ("": none is known)."""

    quota: str
    limit: int
    unit: str
    principal: str
    usage: str


async def quotas(view: View) -> Page:
    project = view.project
    answer, history, by_topic = await asyncio.gather(
        view.get(f"{project}/quotas"),
        view.block(f"{project}/timeSeries", **LAST_HOUR),
        view.series([METRICS["publishRequests"]], HOUR, resource=f"{project}/topics/-", label=EXHAUSTED),
    )
    refused = next(iter(of_refused_publishes(project, by_topic, by_topic, Block(answer), view.now)), None)
    rates = rates_of(history)
    guilty = _guilty(answer["quotas"], rates) if refused else ()
    return list_page(
        view,
        "Quotas",
        collection="quotas",
        command="broker quota show",
        row_actions={"setQuota": [project]},
        data={
            "rows": [_row(one, rates.get(one["quota"]), one["quota"] in guilty) for one in answer["quotas"]],
            "of_each": list(_of_each(answer)),
            "refused": refused,
            "history": history,
        },
    )


def _row(one: Json, rate: Rate | None, refuses: bool) -> Row:
    if rate is None or not rate.highest_at:
        return Row(one, "", "", refuses)
    return Row(one, figure(rate.highest, one["unit"]), rate.highest_at, refuses)


def _guilty(found: Sequence[Json], rates: Mapping[str, Rate]) -> Sequence[str]:
    """Return the quotas that publishes were refused by: the limited ones, and of several those nearly used up."""
    limited = [one for one in found if one["quota"] in PUBLISH_QUOTAS and "limit" in one]
    if len(limited) > 1:
        near = [one for one in limited if _most(one, rates) >= one["limit"] * NEAR_LIMIT]
        limited = near or limited
    return [one["quota"] for one in limited]


def _most(one: Json, rates: Mapping[str, Rate]) -> float:
    rate = rates.get(one["quota"])
    return max(float(one["usage"]), rate.highest if rate is not None else 0.0)


def _of_each(answer: Json) -> Iterable[Limit]:
    units = {one["quota"]: one["unit"] for one in answer["quotas"]}
    for quota in RATES:
        used = [one for one in answer["principalQuotas"] if one["quota"] == quota]
        limit = next((one["limit"] for one in used if "limit" in one), answer["principalLimits"].get(quota, -1))
        if limit >= 0:
            most = max(used, key=lambda one: float(one["usage"]), default=None)
            usage = amount(most["usage"], units[quota]) if most else ""
            yield Limit(quota, limit, units[quota], most["principal"] if most else "", usage)


PAGES = [PageRoute("projects/{project}/quotas", quotas, ["Quotas.GetQuotas", "Monitoring.ListTimeSeries"])]
