"""The dead letters of a subscription, grouped by their cause or one by one."""

import asyncio

from broker.console.actions.action import Change
from broker.console.actions.differences import differences
from broker.console.api import Json
from broker.console.bodies import MOST_BYTES, body_of
from broker.console.page import PREVIEW_BYTES, Command, Page, PageRoute, View, option
from broker.model.dead_letter import REASON, SOURCE_MESSAGE_ID

_ADDED = (SOURCE_MESSAGE_ID, REASON)  # to the attributes of a dead letter
_ADDED_PREFIX = "CloudPubSubDeadLetterSource"


async def dead_letters(view: View) -> Page:
    subscription = view.parts["subscription"]
    name = f"{view.project}/subscriptions/{subscription}"
    group_by, asked = view.query.get("groupBy") or "reason", view.asked("reason", "filter")
    groups, letters = await asyncio.gather(
        view.block(f"{name}/deadLetters", groupBy=group_by, **asked),
        view.block(
            f"{name}/deadLetters",
            **view.page,
            previewBytes=PREVIEW_BYTES,
            **asked,
        ),
    )
    return Page(
        template="dead_letters.html",
        title=f"Dead letters of {subscription}",
        name=name,
        section="subscriptions",
        commands=[
            Command(
                f"broker dlq summary {subscription} --project {view.parts['project']}"
                + option({"by": group_by, **asked}),
                f"{name}/deadLetters",
                query={"groupBy": group_by, **asked},
            )
        ],
        row_actions={"redrive": [name], "discard": [name], "editDeadLetter": [name]},
        data={
            "groups": groups,
            "letters": letters,
            "group_by": group_by,
            "asked": asked,
            "next": view.next_page(letters.answer),
            "subscription": subscription,
        },
    )


async def compare(view: View) -> Page:
    """The two newest dead letters of a reason beside each other."""
    subscription = view.parts["subscription"]
    name, asked = f"{view.project}/subscriptions/{subscription}", view.asked("reason", "filter")
    found = await view.get(f"{name}/deadLetters", pageSize=2, previewBytes=MOST_BYTES, **asked)
    letters = found.get("deadLetters", [])
    attributes, bodies = list[Change](), list[Change]()
    if len(letters) == 2:
        before, after = letters
        attributes = [*differences(_attributes(before), _attributes(after))]
        bodies = [*differences(_body(before), _body(after), around=1_000)]
    return Page(
        template="compare_dead_letters.html",
        title=f"Two dead letters of {subscription}",
        name=name,
        section="subscriptions",
        commands=[
            Command(
                f"broker dlq list {subscription} --max 2 --project {view.parts['project']}" + option(asked),
                f"{name}/deadLetters",
                query={"pageSize": 2, **asked},
            )
        ],
        row_actions={"redrive": [name], "discard": [name], "editDeadLetter": [name]},
        data={
            "letters": letters,
            "asked": asked,
            "attributes": attributes,
            "bodies": bodies,
            "subscription": subscription,
        },
    )


def _attributes(letter: Json) -> str:
    """The attributes that the publisher gave, without those that say why the message is dead."""
    given = letter["message"].get("attributes", {})
    own = {key: value for key, value in given.items() if key not in _ADDED and not key.startswith(_ADDED_PREFIX)}
    return "\n".join(f"{key}={value}" for key, value in sorted(own.items()))


def _body(letter: Json) -> str:
    return body_of(letter["message"].get("data", ""), size=letter.get("dataSize")).text


PAGES = [
    PageRoute("projects/{project}/subscriptions/{subscription}/deadLetters", dead_letters, ["ListDeadLetters"]),
    PageRoute("projects/{project}/subscriptions/{subscription}/deadLetters/compare", compare, ["ListDeadLetters"]),
]
