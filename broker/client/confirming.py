"""Asks for confirmation before data is lost for good, if standard input is a terminal."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import click

from broker.client import terminal
from broker.client.api import Api, Json, NotKnown, NotReached, Refused
from broker.client.words import counted, leaf, short_time

YES = click.option("--yes", is_flag=True, help="Do not ask; only a terminal is asked.")

_MOST_NAMES = 5
_MOST_SCHEDULED = 1_000  # messages that are counted one by one


class Loss(NamedTuple):
    """`find()` says what is lost, a sentence without its full stop; "": nothing.  `what` is that in two words."""

    what: str
    find: Callable[[], str]


def is_asked(*, yes: bool) -> bool:
    """Whether the user can be asked, and has not answered by --yes."""
    return not yes and sys.stdin.isatty()


def confirm(question: str, *, yes: bool) -> None:
    """Raises click.Abort unless the answer is yes."""
    if is_asked(yes=yes):
        terminal.ask(question)


def confirm_loss(question: str, losses: Sequence[Loss], *, yes: bool) -> None:
    """Asks only if something is lost, or if that could not be determined.

    Raises click.Abort unless the answer is yes.
    """
    if not is_asked(yes=yes):
        return
    lost = list(determine_losses(losses))
    for each in lost:
        terminal.write_line(f"  {each}", error=True)
    if lost:
        confirm(question, yes=yes)


def determine_losses(losses: Sequence[Loss]) -> Iterator[str]:
    """Yields the losses that there would be.  A resource that does not exist loses nothing."""
    for loss in losses:
        try:
            found = loss.find()
        except (Refused, NotKnown, NotReached) as error:
            if isinstance(error, Refused) and error.status == "NOT_FOUND":
                return
            found = f"{loss.what} could not be determined: {str(error).partition(';')[0]}"
        if found:
            yield found


def losses_of_subscription(api: Api, name: str) -> Sequence[Loss]:
    """Lists what is lost when a subscription is deleted or detached."""
    return (
        Loss("its backlog", lambda: _backlog(api, name)),
        Loss("its dead letters", lambda: _dead_letters(api, name)),
    )


def losses_of_topic(api: Api, name: str) -> Sequence[Loss]:
    """Lists what the deletion of a topic loses or stops."""
    project = "/".join(name.split("/")[:2])
    return (
        Loss("its subscriptions", lambda: _attached(api, name)),
        Loss("its snapshots", lambda: _snapshots(api, name)),
        Loss("its dead-letter policies", lambda: _dead_letter_policies(api, project, name)),
        Loss("its schedules", lambda: _schedules(api, project, name)),
        Loss("its scheduled messages", lambda: _scheduled(api, name)),
    )


def backlog_text(answer: Json) -> str:
    """ "12 undelivered messages", "" for none."""
    count = answer["undeliveredMessages"]
    about = "about " if answer.get("undeliveredMessagesEstimated") else ""
    return f"{about}{counted(count, 'undelivered message')}" if count else ""


def _backlog(api: Api, name: str) -> str:
    if api.call("GET", name).get("detached"):
        return ""  # it has lost its messages already
    text = backlog_text(api.call("GET", f"{name}/snapshot"))
    return f"{text} would be lost" if text else ""


def _dead_letters(api: Api, name: str) -> str:
    try:
        count = int(api.call("GET", f"{name}/deadLetters", params={"groupBy": "reason"})["deadLetterCount"])
    except NotKnown:
        return ""  # the server keeps none
    return f"{counted(count, 'dead letter')} could no longer be redriven" if count else ""


def _attached(api: Api, name: str) -> str:
    found = [str(one) for one in api.all_of(f"{name}/subscriptions", "subscriptions")]
    return _listed(found, "subscription would get", "subscriptions would get", "nothing more")


def _snapshots(api: Api, name: str) -> str:
    found = [str(one) for one in api.all_of(f"{name}/snapshots", "snapshots")]
    return _listed(found, "snapshot would belong", "snapshots would belong", "to no topic")


def _dead_letter_policies(api: Api, project: str, name: str) -> str:
    subscriptions = api.all_of(f"{project}/subscriptions", "subscriptions")
    found = [one["name"] for one in subscriptions if one.get("deadLetterPolicy", {}).get("deadLetterTopic") == name]
    return _listed(found, "dead-letter policy publishes", "dead-letter policies publish", "to it")


def _schedules(api: Api, project: str, name: str) -> str:
    try:
        found = api.all_of(f"{project}/schedules", "schedules")
    except NotKnown:
        return ""  # the server has none
    names = [one["name"] for one in found if one["topic"] == name]
    return _listed(names, "schedule publishes", "schedules publish", "to it")


def _scheduled(api: Api, name: str) -> str:
    try:
        found = api.all_of(f"{name}/scheduled", "scheduledMessages", most=_MOST_SCHEDULED)
    except NotKnown:
        return ""  # the server publishes everything at once
    if not found:
        return ""
    at_least = "at least " if len(found) == _MOST_SCHEDULED else ""
    first = short_time(found[0]["deliverTime"])
    return f"{at_least}{counted(len(found), 'scheduled message')} would be lost, the first due at {first}"


def _listed(names: Sequence[str], one: str, more: str, rest: str) -> str:
    if not names:
        return ""
    shown = ", ".join(map(leaf, names[:_MOST_NAMES])) + (", …" if len(names) > _MOST_NAMES else "")
    return f"{len(names):,} {one if len(names) == 1 else more} {rest}: {shown}"
