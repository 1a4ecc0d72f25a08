"""Lists the schedules, dead-letter policies, operations and event settings that publish to a topic;
an extension.
"""

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
    """Shows the owner of a topic which of the broker's own publishers use it, and with which permission."""

    def __init__(self, database: Database, check_publisher: CheckPublisher) -> None:
        self._database = database
        self._check_publisher = check_publisher

    async def list_publishers(self, topic: str, page: Page) -> tuple[Sequence[TopicPublisher], str]:
        """Returns a page ordered by name, and the token of the next page.  Raises NotFound, Unavailable."""
        async with self._database.transaction() as connection:
            if await find_topic(connection, name=topic) is None:
                raise topic_not_found(topic)
            found = await list_topic_publishers(connection, topic=topic, page=page)
        publishers, token = cut_page(found, page.size, lambda publisher: publisher.name)
        return [await self._with_right(publisher, topic) for publisher in publishers], token

    async def _with_right(self, publisher: TopicPublisher, topic: str) -> TopicPublisher:
        """Adds the service agent of a publisher of another project, and the reason if that may not publish."""
        project = project_of(publisher.name)
        if project == project_of(topic):
            return publisher
        agent = service_agent(project).member
        try:
            await self._check_publisher(project, topic)
        except PermissionDenied as error:
            return replace(publisher, service_agent=agent, state=PublisherState.DENIED, reason=error.message)
        return replace(publisher, service_agent=agent)
