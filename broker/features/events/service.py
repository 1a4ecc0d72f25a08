"""Reads and changes the topic of a project's events (F4), and lists its last events and marks.
features/events/worker.py detects events.
"""

from collections.abc import Mapping, Sequence

from broker.core.catalog import topic_rows as topics
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.features.events import kept_rows as kept
from broker.features.events import rows as events
from broker.features.events.event_list import parse_event_filter, parse_event_page
from broker.features.events.kept_rows import KeptEvent
from broker.features.events.mark import check_mark, mark_json
from broker.model.errors import InvalidArgument
from broker.model.names import check_name, check_project, not_found, project_of
from broker.model.page import cut_page


class EventService:
    """Extensions: a project's settings, its events, and its marks."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock

    async def get_event_topic(self, project: str) -> str:
        """The name of the topic; "": there are no events.  Raises InvalidArgument."""
        check_project(project)
        async with self._database.transaction() as connection:
            return await events.read_event_topic(connection, project=project)

    async def set_event_topic(self, project: str, topic: str) -> None:
        """Sets the event topic of a project from now on; "": no events any more.

        Raises InvalidArgument (a topic of another project), NotFound; nothing is changed then.
        """
        check_project(project)
        if topic:
            check_name(topic, "topics")
            if project_of(topic) != project:
                raise InvalidArgument(f"eventTopic must be a topic of {project} itself (eventTopic={topic[:200]}).")
        async with self._database.transaction() as connection:
            if topic and await topics.share_topic(connection, name=topic) is None:
                raise not_found("Event topic does not exist", topic, "topics")
            await events.write_event_topic(connection, project=project, topic=topic, now=self._clock.now())

    async def list_events(
        self, project: str, *, page_size: int, page_token: str, order_by: str = "", filter_text: str = ""
    ) -> tuple[Sequence[KeptEvent], str]:
        """Returns a page of the last events and marks of a project that match a filter, and the token of the next
        page.  Raises InvalidArgument.
        """
        check_project(project)
        page, comparisons = parse_event_page(page_size, page_token, order_by), parse_event_filter(filter_text)
        async with self._database.transaction() as connection:
            found = await kept.list_kept(connection, project=project, page=page, comparisons=comparisons)
        return cut_page(found, page.size, lambda event: (event.event_id, page.order.value))

    async def create_mark(self, project: str, text: str, labels: Mapping[str, str], *, by: str) -> KeptEvent:
        """Marks the present time.  `by`: the principal that calls ("": not known).  Raises InvalidArgument."""
        check_project(project)
        check_mark(text, labels)
        now = self._clock.now()
        body = mark_json(project, text, labels, by=by, now=now)
        async with self._database.transaction() as connection:
            return await kept.insert_mark(connection, project=project, body=body, now=now)
