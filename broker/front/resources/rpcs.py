"""The methods about resources and their handlers, for both doors; named as in Google's service definitions."""

from collections.abc import Mapping

from broker.front.resources import snapshots, subscriptions, topics
from broker.front.resources.call import Handler

RPCS: Mapping[str, Handler] = {
    "Publisher.CreateTopic": topics.create_topic,
    "Publisher.UpdateTopic": topics.update_topic,
    "Publisher.GetTopic": topics.get_topic,
    "Publisher.ListTopics": topics.list_topics,
    "Publisher.ListTopicSubscriptions": topics.list_topic_subscriptions,
    "Publisher.ListTopicSnapshots": topics.list_topic_snapshots,
    "Publisher.DeleteTopic": topics.delete_topic,
    "Publisher.DetachSubscription": subscriptions.detach_subscription,
    "Subscriber.CreateSubscription": subscriptions.create_subscription,
    "Subscriber.GetSubscription": subscriptions.get_subscription,
    "Subscriber.UpdateSubscription": subscriptions.update_subscription,
    "Subscriber.ListSubscriptions": subscriptions.list_subscriptions,
    "Subscriber.DeleteSubscription": subscriptions.delete_subscription,
    "Subscriber.ModifyPushConfig": subscriptions.modify_push_config,
    "Subscriber.GetSnapshot": snapshots.get_snapshot,
    "Subscriber.ListSnapshots": snapshots.list_snapshots,
    "Subscriber.CreateSnapshot": snapshots.create_snapshot,
    "Subscriber.UpdateSnapshot": snapshots.update_snapshot,
    "Subscriber.DeleteSnapshot": snapshots.delete_snapshot,
    "Subscriber.Seek": snapshots.seek,
}
