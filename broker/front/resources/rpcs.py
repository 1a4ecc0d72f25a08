"""The methods about resources and their handlers, for both doors; named as in Google's service definitions."""

from collections.abc import Mapping

from broker.front.resources import topics
from broker.front.resources.call import Handler

RPCS: Mapping[str, Handler] = {
    "Publisher.CreateTopic": topics.create_topic,
    "Publisher.UpdateTopic": topics.update_topic,
    "Publisher.GetTopic": topics.get_topic,
    "Publisher.ListTopics": topics.list_topics,
    "Publisher.ListTopicSubscriptions": topics.list_topic_subscriptions,
    "Publisher.ListTopicSnapshots": topics.list_topic_snapshots,
    "Publisher.DeleteTopic": topics.delete_topic,
}
