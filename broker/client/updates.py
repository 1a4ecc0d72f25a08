"""Updates fields of a resource, on any server of the API."""

from collections.abc import Sequence

from broker.client.api import Api, Json
from broker.client.fields import camel, mask


def update_resource(api: Api, name: str, noun: str, body: Json, cleared: Sequence[str] = ()) -> Json:
    """`noun` is what the request calls it: "topic".

    Masks name whole fields: Google's emulator takes no paths within them.  So what stands beside a part that is
    given is read first, and sent back.
    """
    if any(isinstance(value, dict) and value for value in body.values()):
        body = merged(api.call("GET", name), body, only=body)
    asked = {noun: body | {"name": name}, "updateMask": mask(body, [camel(one) for one in cleared])}
    return api.call("PATCH", name, asked)


def merged(there: Json, given: Json, *, only: Json | None = None) -> Json:
    """`there` with what is given, at any depth; what is given as empty is empty.  `only`: these fields alone."""
    found = {name: value for name, value in there.items() if only is None or name in only}
    for name, value in given.items():
        held = found.get(name)
        found[name] = merged(held, value) if value and isinstance(value, dict) and isinstance(held, dict) else value
    return found
