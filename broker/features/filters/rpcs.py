"""Rows of the table of calls for changing and testing filters."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import TO_LOOK, UPDATE_SUBSCRIPTION, Need, Needs
from broker.api.rest.routes import Rest
from broker.api.row import SUBSCRIPTION, TOPIC, Row
from broker.api.rpc import Audit, Kind, Size
from broker.core.resources.subscription_service import SubscriptionService
from broker.core.viewing.message_views import MessageViews
from broker.features.filters import change_rest, trial_rest
from broker.features.filters.change_service import FilterChangeService
from broker.features.filters.trial_service import FilterService


def make_rpcs(
    *, changes: FilterChangeService, trials: FilterService, subscriptions: SubscriptionService, views: MessageViews
) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="SetFilter", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=UPDATE_SUBSCRIPTION,  # and ATTACH on the topic: a wider filter shows more messages
            rest=[
                Rest(
                    "POST", f"{SUBSCRIPTION}:setFilter", "SetFilter",
                    partial(change_rest.set_filter, changes, subscriptions), (),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="TestFilter", kind=Kind.SCAN, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(
                Need(
                    {
                        "topics": "pubsub.topics.attachSubscription",
                        "subscriptions": "pubsub.subscriptions.consume",
                    },
                ),
                instead=TO_LOOK,
            ),
            rest=[
                Rest(
                    "POST", f"{TOPIC}:testFilter", "TestFilter",
                    partial(trial_rest.test_filter, trials, views), (),
                ),
                Rest(
                    "POST", f"{SUBSCRIPTION}:testFilter", "TestFilterOfSubscription",
                    partial(trial_rest.test_filter_of_subscription, trials, views), (),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
