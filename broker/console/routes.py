"""All pages of the console."""

from collections.abc import Sequence

from broker.console.page import PageRoute
from broker.console.pages import (
    activity,
    dead_letters,
    messages,
    operations,
    overview,
    projects,
    quotas,
    schedules,
    schemas,
    search,
    snapshots,
    subscriptions,
    topics,
)

PAGES: Sequence[PageRoute] = [
    *projects.PAGES,
    *overview.PAGES,
    *search.PAGES,
    *topics.PAGES,
    *messages.PAGES,
    *subscriptions.PAGES,
    *dead_letters.PAGES,
    *operations.PAGES,
    *schedules.PAGES,
    *snapshots.PAGES,
    *schemas.PAGES,
    *activity.PAGES,
    *quotas.PAGES,
]
