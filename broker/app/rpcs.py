"""Joins the rows of calls of all packages into one table."""

from collections.abc import Sequence

from broker.api.permissions import Needs
from broker.api.row import Row
from broker.api.standard_rpcs import STANDARD_RPCS
from broker.app.service_types import Services
from broker.core.acking import rpcs as acking
from broker.core.backlog.seeking import rpcs as seeking
from broker.core.publishing import rpcs as publishing
from broker.core.pulling import rpcs as pulling
from broker.core.resources import rpcs as resources
from broker.features.audit import rpcs as audit
from broker.features.dead_letters import rpcs as dead_letters
from broker.features.delayed import rpcs as delayed
from broker.features.events import rpcs as events
from broker.features.filters import rpcs as filters
from broker.features.iam import rpcs as iam
from broker.features.import_export import rpcs as import_export
from broker.features.inspect import rpcs as inspect
from broker.features.journal import rpcs as journal
from broker.features.operations import rpcs as operations
from broker.features.operations.rest import OperationCalls
from broker.features.purge import rpcs as purge
from broker.features.push_status import rpcs as push_status
from broker.features.quotas import rpcs as quotas
from broker.features.resend import rpcs as resend
from broker.features.reset import rpcs as reset
from broker.features.retraction import rpcs as retraction
from broker.features.schedules import rpcs as schedules
from broker.features.schemas import rpcs as schemas
from broker.features.transforms import rpcs as transforms
from broker.model.operation_verb import Verb


def make_rpcs(services: Services) -> Sequence[Row]:
    """The table of calls."""
    looking, acting = services.looking, services.acting

    def needed_to_start(verb: Verb) -> Needs:
        return next(row.needs for row in rpcs if row.starts is verb)

    rpcs = [
        *publishing.make_rpcs(services.publish),
        *pulling.make_rpcs(pulls=services.pull, streams=services.streaming_pull, acknowledge=services.acknowledge),
        *acking.make_rpcs(services.acknowledge),
        *seeking.make_rpcs(snapshots=services.snapshots, seeks=acting.seeks),
        *resources.make_rpcs(
            topics=services.topics,
            subscriptions=services.subscriptions,
            freezes=acting.freezes,
            pauses=acting.pauses,
        ),
        *purge.make_rpcs(acting.purges, acting.seeks),
        *inspect.make_rpcs(
            lag=looking.lag,
            consumers=looking.consumers,
            publishers=looking.topic_publishers,
            delivery_reports=looking.delivery_reports,
            backlog_messages=looking.backlog_messages,
            topic_messages=looking.topic_messages,
            tails=looking.tail,
        ),
        *journal.make_rpcs(looking.journal_tail),
        *filters.make_rpcs(
            changes=acting.filter_changes, trials=looking.filters, subscriptions=services.subscriptions
        ),
        *push_status.make_rpcs(pushes=services.pushes, pauses=acting.pauses),
        *dead_letters.make_rpcs(
            dead_letters=looking.dead_letters,
            redrives=acting.redrives,
            discards=acting.discards,
            edits=acting.edits,
            push_replays=acting.push_replays,
        ),
        *resend.make_rpcs(acting.resends),
        *retraction.make_rpcs(acting.retractions),
        *import_export.make_rpcs(copies=acting.copies, exports=looking.exports, imports=acting.imports),
        *delayed.make_rpcs(acting.schedule),
        *schedules.make_rpcs(acting.schedules),
        *schemas.make_rpcs(services.schemas),
        *transforms.make_rpcs(services.transforms),
        *operations.make_rpcs(OperationCalls(services.operations, needed_to_start)),
        *reset.make_rpcs(acting.resets),
        *events.make_rpcs(services.events),
        *quotas.make_rpcs(services.quotas),
        *audit.make_rpcs(services.audit_logs),
        *iam.make_rpcs(
            policies=services.policies,
            accounts=services.service_accounts,
            roles=services.roles,
            api_keys=services.api_keys,
        ),
        *STANDARD_RPCS,
    ]
    return rpcs
