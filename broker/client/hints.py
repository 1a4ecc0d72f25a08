"""Explains errors of the server in terms of the command line."""

import re

_RESOURCE = re.compile(r"/v1/(projects/[^/]+)/(topics|subscriptions|snapshots|operations|schedules)/([^/:]+)")
NOUNS = {
    "topics": "topic",
    "subscriptions": "sub",
    "snapshots": "snapshot",
    "operations": "op",
    "schedules": "schedule",
}
# How refusals begin that are of another resource than the one that was called.
_OF_ANOTHER = {
    "Topic ": "topic",
    "Subscription topic ": "topic",
    "Dead letter topic ": "topic",
    "Subscription does ": "sub",
}


def hint(status: str, path: str, reason: str = "", *, asked: bool) -> str:
    """Added to the refusal of a call of `path`, for this reason; `asked`: with credentials."""
    match status:
        case "NOT_FOUND":
            return _not_there(path, reason)
        case "FAILED_PRECONDITION":
            return _not_as_it_is(path, reason)
        case "ALREADY_EXISTS" if named := _RESOURCE.match(path):
            noun = NOUNS[named[2]]
            return f"; `broker {noun} show` and `broker {noun} update` are for one that exists"
        case "UNAUTHENTICATED" if not asked:
            return (
                "; give --credentials FILE or BROKER_CREDENTIALS: the key file of a service account, or an API key"
            )
        case "UNAUTHENTICATED":
            return "; the credentials are unknown here, expired or disabled: `broker auth keys create` makes others"
        case "PERMISSION_DENIED":
            return "; `broker auth policy add` gives roles, to whoever may do that"
        case "UNAVAILABLE":
            return "; try again"
        case "RESOURCE_EXHAUSTED" if not reason:  # a reason says what ends it
            return "; try again"
    return ""


def _not_there(path: str, reason: str) -> str:
    named = _RESOURCE.match(path)
    if named is None or path.endswith((":retract", ":replace")):
        return ""  # of the topic, or of a message of it: the refusal says
    if "/scheduled" in path:
        return f"; `broker scheduled list {named[3]}` shows what waits"
    if path.endswith(":publish"):
        return f"; `broker topic create {named[3]}` makes it"
    noun = next((of for begin, of in _OF_ANOTHER.items() if reason.startswith(begin)), NOUNS[named[2]])
    return f"; `broker {noun} list` shows what there is"


def _not_as_it_is(path: str, reason: str) -> str:
    named = _RESOURCE.match(path)
    if named and named[2] == "subscriptions" and path.endswith(":tail"):
        return f"; `broker sub update {named[3]} --set extensions.journal.mode=ALL` does"
    if path.endswith((":recover", ":replayMissing")) and "no endpoint" in reason:
        return "; that is `broker dlq redrive`, `broker push resend` and `broker seek`"
    return ""
