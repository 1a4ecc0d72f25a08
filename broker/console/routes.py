"""All pages of the console."""

from collections.abc import Sequence

from broker.console.page import PageRoute
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
