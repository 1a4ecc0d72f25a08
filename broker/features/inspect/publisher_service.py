"""What publishes on a topic without a caller; an extension."""

from collections.abc import Sequence
from dataclasses import replace

from broker.access.principals.service_agent import service_agent
from broker.core.catalog.topic_rows import find_topic
from broker.core.publishing.publish_rights import CheckPublisher
from broker.core.resources.topic_service import topic_not_found
from broker.db.driver.database import Database
from broker.features.inspect.publisher_rows import list_topic_publishers
from broker.features.inspect.topic_publisher import PublisherState, TopicPublisher
from broker.model.errors import PermissionDenied
from broker.model.names import project_of
from broker.model.page import Page, cut_page


class TopicPublisherService:
    """Shows the owner of a topic who publishes there by a right that the owner can take away."""

    def __init__(self, database: Database, check_publisher: CheckPublisher) -> None:
        self._database = database
        self._check_publisher = check_publisher

    async def list_publishers(self, topic: str, page: Page) -> tuple[Sequence[TopicPublisher], str]:
        """A page by name, and the token of the next.  Raises NotFound, Unavailable."""
        async with self._database.transaction() as connection:
            if await find_topic(connection, name=topic) is None:
                raise topic_not_found(topic)
            found = await list_topic_publishers(connection, topic=topic, page=page)
        publishers, token = cut_page(found, page.size, lambda publisher: publisher.name)
        return [await self._with_right(publisher, topic) for publisher in publishers], token

    async def _with_right(self, publisher: TopicPublisher, topic: str) -> TopicPublisher:
        """A publisher of another project, with whether that may publish."""
        project = project_of(publisher.name)
        if project == project_of(topic):
            return publisher
        agent = service_agent(project).member
        try:
            await self._check_publisher(project, topic)
        except PermissionDenied as error:
            return replace(publisher, service_agent=agent, state=PublisherState.DENIED, reason=error.message)
        return replace(publisher, service_agent=agent)
