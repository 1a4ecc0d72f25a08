"""Reads and changes the topic of a project's events (F4).  features/events/worker.py detects events."""

from broker.core.catalog import topic_rows as topics
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.features.events import rows as events
from broker.model.errors import InvalidArgument
from broker.model.names import check_name, check_project, not_found, project_of


class EventService:
    """An extension: a project's settings."""

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
