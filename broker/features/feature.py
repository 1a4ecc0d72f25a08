"""The parts that a feature adds to a broker process.

Each feature has a `feature.py` with one function `register`, which builds the parts of the feature and returns a
Feature.  `broker/app/features.py` lists the features in order.  The core does not import features: it runs what
they register.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.routing import Route

from broker.api.row import Row
from broker.core.catalog.subscription_listener import SubscriptionListener
from broker.core.claiming.hooks import AnswerHook, ShardOrders
from broker.core.process.supervisor import Worker
from broker.core.publishing.publish_rule import PublishRule
from broker.core.resources.resource_field import ResourceField
from broker.core.resources.topic_view import TopicView
from broker.core.retention.retention_janitor import CleanUp
from broker.model.subscription import Subscription
from broker.model.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The parts of a feature; each is optional.

    `rpcs`: the rows of its calls.  `workers`: its background work, by the names that the log uses.  `clean_ups`:
    what the janitor runs at the end of each pass.

    `begin` runs before the first call, and again while the database is away.  `stop` runs once the workers have
    ended.  `resource_changed(name)` is called when a resource has changed, in any process (None: any may have).
    `outbox_committed` is called when an application has committed a transaction with messages or acks.

    `publish_rules`: what its properties of topics do to messages.  `topic_fields`, `subscription_fields`: what a
    change of its fields asks for.  `topic_views`: by name, what it adds to the topics of a list.  `listeners` hear
    of subscriptions that are read.  `make_shard_orders` makes, for a scheduler of claims, the orders of shards.
    `answer_hook` changes claimed messages before their consumer gets them.  `policy_resources`: by kind, what gets
    a resource of it that may have a policy.

    `close` ends its processes, at the very end.

    `pages` are HTTP pages beside the API.  `metrics_pages` are served on the port for metrics, where callers need
    no permission.
    """

    rpcs: Sequence[Row] = ()
    workers: Mapping[str, Worker] = field(default_factory=dict)
    clean_ups: Sequence[CleanUp] = ()
    begin: Callable[[], Awaitable[object]] | None = None
    stop: Callable[[], None] | None = None
    resource_changed: Callable[[str | None], None] | None = None
    outbox_committed: Callable[[], None] | None = None
    publish_rules: Sequence[PublishRule] = ()
    topic_fields: Sequence[ResourceField[Topic]] = ()
    subscription_fields: Sequence[ResourceField[Subscription]] = ()
    topic_views: Mapping[str, TopicView] = field(default_factory=dict)
    listeners: Sequence[SubscriptionListener] = ()
    make_shard_orders: Callable[[], ShardOrders] | None = None
    answer_hook: AnswerHook | None = None
    policy_resources: Mapping[str, Callable[[str], Awaitable[object]]] = field(default_factory=dict)
    close: Callable[[], Awaitable[object]] | None = None
    pages: Sequence[Route] = ()
    metrics_pages: Sequence[Route] = ()
