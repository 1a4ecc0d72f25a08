"""Reads the schedules, dead-letter policies, operations and event settings that publish to a topic (E2)."""

from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection
from broker.features.inspect.topic_publisher import PublisherState, TopicPublisher
from broker.model.page import Page

_LIST_TOPIC_PUBLISHERS = statements.load("list_topic_publishers")


async def list_topic_publishers(connection: ResourceConnection, *, topic: str, page: Page) -> list[TopicPublisher]:
    """Returns the publishers of a page ordered by name, and one more if there are more.

    The permission of a publisher is not checked here.
    """
    asked = {"topic": topic, "after": page.after, "size": page.size + 1}
    rows = await connection.exec_driver_sql(_LIST_TOPIC_PUBLISHERS, asked)
    return [
        TopicPublisher(
            name=row.name,
            kind=row.kind,
            created_by=row.created_by,
            state=PublisherState.PAUSED if row.is_paused else PublisherState.ACTIVE,
        )
        for row in rows
    ]
