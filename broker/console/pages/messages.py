"""One message: what became of it for each subscription, its body, also by its schema, and links."""

import asyncio
import json

from broker.client.words import leaf
from broker.console.bodies import MOST_BYTES, body_of, escaped
from broker.console.links import links_of
from broker.console.page import Block, Command, Page, PageRoute, View
from broker.console.states import of_message

_SCHEMA = "googclient_schemaname"  # the attribute of messages of a topic with a schema


async def message(view: View) -> Page:
    project, message_id = view.project, view.parts["message"]
    parent = f"{project}/topics/{view.parts['topic']}" if "topic" in view.parts else project
    name = f"{parent}/messages/{message_id}"
    found = await view.get(name, previewBytes=MOST_BYTES)
    reports = [(one, of_message(one["state"])) for one in found.get("subscriptions", [])]
    given, topic = found.get("message", {}), found["topic"]
    body_view = view.query.get("body", "")
    has_schema = _SCHEMA in given.get("attributes", {})
    templates, decoded = await asyncio.gather(
        view.block(f"{topic.partition('/topics/')[0]}/linkTemplates"),
        _decoded(view, topic, message_id, body_view, has_schema),
    )
    return Page(
        template="message.html",
        title=message_id,
        name=name,
        section="topics",
        row_actions={
            "resend": [one["subscription"] for one, _ in reports],
            "release": [one["subscription"] for one, _ in reports if one["state"] == "OUTSTANDING"],
            "deadLetter": [
                one["subscription"] for one, _ in reports if one["state"] in ("OUTSTANDING", "RETRYING")
            ],
        },
        commands=[Command(f"broker message show {message_id} --project {leaf(project)}", name)],
        data={
            "found": found,
            "message": given,
            "body": body_of(given.get("data", ""), body_view, size=found.get("dataSize")),
            "has_schema": has_schema,
            "decoded": decoded,
            "decoded_text": _text_of(decoded),
            "links": links_of(templates.list("linkTemplates"), topic, given, found.get("masked")),
            "reports": sorted(reports, key=lambda each: (each[1].rank, each[0]["subscription"])),
        },
    )


async def _decoded(view: View, topic: str, message_id: str, body_view: str, has_schema: bool) -> Block | None:
    """The message by its schema, where that is asked for."""
    if body_view != "decoded" or not has_schema:
        return None
    return await view.block(f"{topic}/messages/{message_id}:decode")


def _text_of(decoded: Block | None) -> str:
    if decoded is None or decoded.error is not None:
        return ""
    return escaped(json.dumps(decoded.answer["decoded"], indent=2, ensure_ascii=False))[:MOST_BYTES]


_MORE = ("DecodeMessage", "Settings.ListLinkTemplates")
PAGES = [
    PageRoute("projects/{project}/messages/{message}", message, ["FindMessage", *_MORE]),
    PageRoute("projects/{project}/topics/{topic}/messages/{message}", message, ["GetMessage", *_MORE]),
]
