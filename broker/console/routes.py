"""All pages of the console, and the events that they follow."""

from collections.abc import Sequence

from broker.console.page import PageRoute, StreamRoute
from broker.console.pages import (
    access,
    activity,
    dead_letters,
    fleet,
    messages,
    operations,
    overview,
    project_dead_letters,
    projects,
    push_attempts,
    quotas,
    schedules,
    schemas,
    search,
    snapshots,
    subscriptions,
    tails,
    topics,
)

PAGES: Sequence[PageRoute] = [
    *projects.PAGES,
    *overview.PAGES,
    *search.PAGES,
    *topics.PAGES,
    *tails.PAGES,
    *messages.PAGES,
    *subscriptions.PAGES,
    *push_attempts.PAGES,
    *dead_letters.PAGES,
    *project_dead_letters.PAGES,
    *fleet.PAGES,
    *operations.PAGES,
    *schedules.PAGES,
    *snapshots.PAGES,
    *schemas.PAGES,
    *activity.PAGES,
    *access.PAGES,
    *quotas.PAGES,
]

STREAMS: Sequence[StreamRoute] = tails.STREAMS
