"""What to do about a refusal, in the words of the command line."""

import re

_RESOURCE = re.compile(r"/v1/(projects/[^/]+)/(topics|subscriptions|snapshots)/([^/:]+)")
NOUNS = {"topics": "topic", "subscriptions": "sub", "snapshots": "snapshot"}


def hint(status: str, path: str, *, asked: bool) -> str:
    """Added to the refusal of a call of `path`; `asked`: with credentials."""
    named = _RESOURCE.match(path)
    noun = NOUNS[named[2]] if named else ""
    match status:
        case "NOT_FOUND" if named and "/scheduled" in path:
            return f"; `broker scheduled list {named[3]}` shows what waits"
        case "NOT_FOUND" if named and path.endswith(":publish"):
            return f"; `broker topic create {named[3]}` makes it"
        case "NOT_FOUND" if path.endswith((":retract", ":replace")):
            return ""  # of the topic, or of a message of it: the refusal says
        case "NOT_FOUND" if noun:
            return f"; `broker {noun} list` shows what there is"
        case "ALREADY_EXISTS" if noun:
            return f"; `broker {noun} show` and `broker {noun} update` are for one that exists"
        case "UNAUTHENTICATED" if not asked:
            return (
                "; give --credentials FILE or BROKER_CREDENTIALS: the key file of a service account, or an API key"
            )
        case "UNAUTHENTICATED":
            return "; the credentials are unknown here, expired or disabled: `broker auth keys create` makes others"
        case "PERMISSION_DENIED":
            return "; `broker auth policy add` gives roles, to whoever may do that"
        case "UNAVAILABLE" | "RESOURCE_EXHAUSTED":
            return "; try again"
    return ""
