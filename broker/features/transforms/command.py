"""`broker transform`."""

import base64
from pathlib import Path
from typing import Any

import click

from broker.client.api import Json
from broker.client.calling import Session, calling
from broker.client.command_line import Group
from broker.client.exit_codes import DONE, REFUSED
from broker.client.files import read_text
from broker.client.output import Shown
from broker.client.stop import Misuse
from broker.client.words import as_typed, body_text, pairs, pairs_text
from broker.client.yaml_documents import read_documents

_file = click.argument("file")


@calling("validate", "broker transform validate upper.js", "broker transform validate transforms.yaml")
@_file
def validate(session: Session, *, file: str) -> Shown:
    """Check transforms; exit code 1 if a topic could not have one of them.

    FILE is JavaScript with one function, or YAML or JSON with a message transform of the API or a list of them.
    """
    transforms = _transforms(file)
    for transform in transforms:
        session.api.call("POST", f"{session.project}:validateMessageTransform", {"messageTransform": transform})
    are = "transform is" if len(transforms) == 1 else "transforms are"
    return Shown(data={"valid": len(transforms)}, line=f"{len(transforms)} {are} valid.")


@calling(
    "test",
    "broker transform test 'one order' --file upper.js --attribute env=prod",
    "broker transform test --id $ID --topic orders --file upper.js",
)
@click.argument("text", required=False)
@click.option("--file", metavar="FILE", help="The transforms, as of `broker transform validate`.")
@click.option("--topic", metavar="TOPIC", help="By the topic's transforms, or of a message that it retains.")
@click.option("--sub", "subscription", metavar="SUB", help="The same of a subscription.")
@click.option("--id", "message_id", metavar="ID", help="A retained message in place of TEXT; needs this broker.")
@click.option("--attribute", "attributes", metavar="KEY=VALUE", multiple=True, help="Of TEXT; repeatable.")
def test(session: Session, *, text: str | None, file: str | None, message_id: str | None, **options: Any) -> int:
    """Show what transforms make of a message, step by step; exit code 1 if one fails. Nothing is published."""
    body = _message(text, message_id, options["attributes"])
    topic, subscription = options["topic"], options["subscription"]
    if file:
        body["messageTransforms"] = {"messageTransforms": _transforms(file)}
    elif not topic and not subscription:
        raise Misuse("give --file FILE, --topic TOPIC or --sub SUB: whose transforms are tested")
    if topic:
        body["topic"] = session.topic(topic)
    if subscription:
        body["subscription"] = session.subscription(subscription)
    answer = session.api.call("POST", f"{session.project}:testMessageTransforms", body)
    steps = answer.get("transformedMessages", [])
    rows = [[str(number), *_step(step)] for number, step in enumerate(steps, 1)]
    columns = ("step", "outcome", "attributes", "data")
    shown = Shown(data=answer, columns=columns, rows=rows, whole=columns[:2], nothing="It has no transform.")
    session.out.show(shown)
    return REFUSED if any("failedMessage" in step for step in steps) else DONE


def _message(text: str | None, message_id: str | None, attributes: tuple[str, ...]) -> Json:
    """Raises Misuse."""
    if (text is None) == (message_id is None):
        raise Misuse("give TEXT or --id ID")
    if message_id is not None:
        return {"messageId": message_id}
    message: Json = {"data": base64.b64encode(as_typed(text or "")).decode()}
    return {"message": message | ({"attributes": pairs(attributes, "--attribute")} if attributes else {})}


def _step(step: Json) -> list[str]:
    if "failedMessage" in step:
        return ["failed", "", step["failedMessage"].get("errorMessage", "")]
    if "filteredMessage" in step:
        return ["dropped", "", ""]
    message = step.get("transformedMessage", {})
    return ["transformed", pairs_text(message.get("attributes")), body_text(message)]


def _transforms(file: str) -> list[Json]:
    """Raises Misuse."""
    text = read_text(file, "--file")
    if file.endswith(".js"):
        return [_of_javascript(text, file)]
    documents = read_documents(text, file)
    found: Any = documents[0].value if len(documents) == 1 else None
    found = found.get("messageTransforms", found) if isinstance(found, dict) else found
    transforms = found if isinstance(found, list) else [found]
    if not transforms or not all(isinstance(one, dict) for one in transforms):
        raise Misuse(f"{file} must be a message transform, such as {{javascriptUdf: …}}, or a list of them")
    return transforms


def _of_javascript(code: str, file: str) -> Json:
    """Raises Misuse."""
    words = code.split("function ", 1)
    name = words[1].partition("(")[0].strip() if len(words) == 2 else ""
    if not name.isidentifier():
        raise Misuse(f"{file} must have a function such as: function {Path(file).stem}(message, metadata) {{…}}")
    return {"javascriptUdf": {"functionName": name, "code": code}}


COMMANDS = Group(
    "transform",
    help="Transforms of messages, tested before a topic or subscription has them.",
    commands=[validate, test],
)
