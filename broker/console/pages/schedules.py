"""The schedules of a project, and one schedule with its latest ticks."""

from broker.console.page import PAGE_SIZE, Page, PageRoute, View, list_page, resource_page
from broker.console.states import State

_PAUSED, _ACTIVE = State("Paused", "paused"), State("Active", "ok")


async def schedules(view: View) -> Page:
    project = view.project
    answer = await view.get(f"{project}/schedules", **view.page)
    rows = [(one, _PAUSED if one["state"] == "PAUSED" else _ACTIVE) for one in answer.get("schedules", [])]
    return list_page(
        view,
        "Schedules",
        collection="schedules",
        command="broker schedule list",
        data={"rows": rows, "next": view.next_page(answer)},
    )


async def schedule(view: View) -> Page:
    name = f"{view.project}/schedules/{view.parts['schedule']}"
    found, ticks = await view.get(name), await view.block(f"{name}/ticks", pageSize=PAGE_SIZE)
    return resource_page(
        view,
        "schedule",
        command="broker schedule show",
        data={
            "schedule": found,
            "ticks": ticks,
            "state": _PAUSED if found["state"] == "PAUSED" else _ACTIVE,
        },
    )


PAGES = [
    PageRoute("projects/{project}/schedules", schedules, ["ListSchedules"]),
    PageRoute("projects/{project}/schedules/{schedule}", schedule, ["GetSchedule", "ListScheduleTicks"]),
]
