"""Rows of the table of calls for topics and subscriptions."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import ACT_AS, GET_TOPIC, UPDATE_SUBSCRIPTION, UPDATE_TOPIC, Need, Needs, On
from broker.api.rest.resource_handler import WHOLE
from broker.api.rest.routes import Rest
from broker.api.row import PROJECT, SUBSCRIPTION, TOPIC, Http, Row, about_resource
from broker.api.rpc import Audit, Kind, Size
from broker.core.resources import freeze_rest, pause_rest, subscription_calls, topic_calls
from broker.core.resources.freeze_service import FreezeService
from broker.core.resources.pause_service import PauseService
from broker.core.resources.subscription_service import SubscriptionService
from broker.core.resources.topic_service import TopicService

_TOKEN = "push_config.oidc_token.service_account_email"  # noqa: S105


def make_rpcs(
    *, topics: TopicService, subscriptions: SubscriptionService, freezes: FreezeService, pauses: PauseService
) -> Sequence[Row]:
    # fmt: off
    return [
        about_resource(
            name="Publisher.CreateTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
            needs=Needs(
                Need("pubsub.topics.create", "name", On.PROJECT),
                Need("pubsub.schemas.attach", "schema_settings.schema"),
            ),
            handler=partial(topic_calls.create_topic, topics), target="name",
            http=[Http("PUT", TOPIC, "CreateTopic", WHOLE)],
        ),
        about_resource(
            name="Publisher.UpdateTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.UPDATE, starts=None,
            needs=Needs(
                Need("pubsub.topics.update", "topic.name"),
                Need("pubsub.schemas.attach", "topic.schema_settings.schema", mask="schema_settings"),
            ),
            handler=partial(topic_calls.update_topic, topics), target="topic.name",
            http=[Http("PATCH", TOPIC, "UpdateTopic", WHOLE)],
        ),
        about_resource(
            name="Publisher.GetTopic", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=GET_TOPIC,
            handler=partial(topic_calls.get_topic, topics), target="topic",
            http=[Http("GET", TOPIC, "GetTopic")],
        ),
        about_resource(
            name="Publisher.ListTopics", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.topics.list", "project", listed="topics")),
            handler=partial(topic_calls.list_topics, topics), target="project",
            http=[Http("GET", f"{PROJECT}/topics", "ListTopics", parameters=("view",))],
        ),
        about_resource(
            name="Publisher.ListTopicSubscriptions",
            kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=GET_TOPIC,
            handler=partial(topic_calls.list_topic_subscriptions, topics), target="topic",
            http=[Http("GET", f"{TOPIC}/subscriptions", "ListTopicSubscriptions")],
        ),
        about_resource(
            name="Publisher.ListTopicSnapshots", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=GET_TOPIC,
            handler=partial(topic_calls.list_topic_snapshots, topics), target="topic",
            http=[Http("GET", f"{TOPIC}/snapshots", "ListTopicSnapshots")],
        ),
        about_resource(
            name="Publisher.DeleteTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("pubsub.topics.delete", "topic")),
            handler=partial(topic_calls.delete_topic, topics), target="topic",
            http=[Http("DELETE", TOPIC, "DeleteTopic", safeguarded="query")],
        ),
        Row(
            name="FreezeTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=UPDATE_TOPIC,
            rest=[Rest("POST", f"{TOPIC}:freeze", "FreezeTopic", partial(freeze_rest.freeze_topic, freezes), ())],
            grpc=[],
        ),
        Row(
            name="UnfreezeTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=UPDATE_TOPIC,
            rest=[
                Rest(
                    "POST", f"{TOPIC}:unfreeze", "UnfreezeTopic",
                    partial(freeze_rest.unfreeze_topic, freezes), (),
                ),
            ],
            grpc=[],
        ),
        about_resource(
            name="Subscriber.CreateSubscription",
            kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
            needs=Needs(
                Need("pubsub.subscriptions.create", "name", On.PROJECT),
                Need("pubsub.topics.attachSubscription", "topic"),
                # Google requires this of its own agent.  Here the owner of the subscription has messages published
                # there.
                Need("pubsub.topics.publish", "dead_letter_policy.dead_letter_topic"),
                Need(ACT_AS, _TOKEN, On.ACCOUNT),
                named_in="topic",
                to_update=(Need("pubsub.subscriptions.update", "name"), Need(ACT_AS, "name", On.PUSHED_AS)),
            ),
            handler=partial(subscription_calls.create_subscription, subscriptions), target="name",
            http=[Http("PUT", SUBSCRIPTION, "CreateSubscription", WHOLE, ("updateMask",))],
        ),
        about_resource(
            name="Subscriber.UpdateSubscription",
            kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.UPDATE, starts=None,
            needs=Needs(
                Need("pubsub.subscriptions.update", "subscription.name"),
                Need(
                    "pubsub.topics.publish", "subscription.dead_letter_policy.dead_letter_topic",
                    mask="dead_letter_policy",
                ),
                Need(ACT_AS, f"subscription.{_TOKEN}", On.ACCOUNT, mask="push_config"),
                # Otherwise a caller could make the broker send the existing token elsewhere.
                Need(ACT_AS, "subscription.name", On.PUSHED_AS, mask="push_config."),
            ),
            handler=partial(subscription_calls.update_subscription, subscriptions), target="subscription.name",
            http=[Http("PATCH", SUBSCRIPTION, "UpdateSubscription", WHOLE)],
        ),
        about_resource(
            name="Subscriber.GetSubscription", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.subscriptions.get", "subscription")),
            handler=partial(subscription_calls.get_subscription, subscriptions), target="subscription",
            http=[Http("GET", SUBSCRIPTION, "GetSubscription")],
        ),
        about_resource(
            name="Subscriber.ListSubscriptions", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.subscriptions.list", "project", listed="subscriptions")),
            handler=partial(subscription_calls.list_subscriptions, subscriptions), target="project",
            http=[Http("GET", f"{PROJECT}/subscriptions", "ListSubscriptions")],
        ),
        about_resource(
            name="Subscriber.DeleteSubscription",
            kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("pubsub.subscriptions.delete", "subscription")),
            handler=partial(subscription_calls.delete_subscription, subscriptions), target="subscription",
            http=[Http("DELETE", SUBSCRIPTION, "DeleteSubscription", safeguarded="query")],
        ),
        about_resource(
            name="Publisher.DetachSubscription",
            kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("pubsub.topics.detachSubscription", "subscription", On.TOPIC)),
            handler=partial(subscription_calls.detach_subscription, subscriptions), target="subscription",
            http=[Http("POST", f"{SUBSCRIPTION}:detach", "DetachSubscription", safeguarded="body")],
        ),
        Row(
            name="PauseSubscription", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=UPDATE_SUBSCRIPTION,
            rest=[
                Rest(
                    "POST", f"{SUBSCRIPTION}:pause", "PauseSubscription",
                    partial(pause_rest.pause_subscription, pauses), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="ResumeSubscription", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=UPDATE_SUBSCRIPTION,
            rest=[
                Rest(
                    "POST", f"{SUBSCRIPTION}:resume", "ResumeSubscription",
                    partial(pause_rest.resume_subscription, pauses), (),
                ),
            ],
            grpc=[],
        ),
        about_resource(
            name="Subscriber.ModifyPushConfig",
            kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("pubsub.subscriptions.update", "subscription"), Need(ACT_AS, _TOKEN, On.ACCOUNT)),
            handler=partial(subscription_calls.modify_push_config, subscriptions), target="subscription",
            http=[Http("POST", f"{SUBSCRIPTION}:modifyPushConfig", "ModifyPushConfig", WHOLE)],
        ),
    ]
    # fmt: on
