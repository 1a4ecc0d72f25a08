"""The features of a broker, in the order in which they are registered.

Each entry hands a feature the parts that it is built from.  The tables of features are always there; a broker
without a feature leaves them empty.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from broker.app.config import AppConfig
from broker.app.parts import Parts
from broker.core.context.core import Core
from broker.features.audit import feature as audit
from broker.features.dead_letters import feature as dead_letters
from broker.features.deduplication import feature as deduplication
from broker.features.delayed import feature as delayed
from broker.features.events import feature as events
from broker.features.events.rows import tell_event
from broker.features.expiry import feature as expiry
from broker.features.feature import Feature
from broker.features.filters import feature as filters
from broker.features.held_messages import feature as held_messages
from broker.features.history import feature as history
from broker.features.iam import feature as iam
from broker.features.import_export import feature as import_export
from broker.features.inspect import feature as inspect
from broker.features.inspect.fleet.database_checks import make_checks
from broker.features.inspect.fleet.service import FleetService
from broker.features.journal import feature as journal
from broker.features.lag_board import feature as lag_board
from broker.features.metrics import feature as metrics
from broker.features.operations import feature as operations
from broker.features.outbox import feature as outbox
from broker.features.priorities import feature as priorities
from broker.features.project_settings import feature as project_settings
from broker.features.projects import feature as projects
from broker.features.purge import feature as purge
from broker.features.push_status import feature as push_status
from broker.features.quotas import feature as quotas
from broker.features.resend import feature as resend
from broker.features.reset import feature as reset
from broker.features.retraction import feature as retraction
from broker.features.schedules import feature as schedules
from broker.features.schemas import feature as schemas
from broker.features.search import feature as search
from broker.features.secrets import feature as secrets
from broker.features.share_links import feature as share_links
from broker.features.topic_stats import feature as topic_stats
from broker.features.transforms import feature as transforms

Register = Callable[[Parts], Feature]
ChangeCore = Callable[[AppConfig, Core], Core]


def _limit_projects(config: AppConfig, core: Core) -> Core:
    return replace(core, admission=quotas.make_admission(core, defaults=config.default_quotas))


def _publish_events(_: AppConfig, core: Core) -> Core:
    return replace(core, tell_event=tell_event)


def _mask_messages(_: AppConfig, core: Core) -> Core:
    return replace(core, views=project_settings.make_views(core))


# What a feature changes in the core before any other part of the process is built from it.
CHANGES_OF_CORE: Mapping[str, ChangeCore] = {
    "quotas": _limit_projects,
    "events": _publish_events,
    "project_settings": _mask_messages,
}


def _schemas(parts: Parts) -> Feature:
    return schemas.register(parts.core)


def _transforms(parts: Parts) -> Feature:
    return transforms.register(parts.core, acks=parts.messages.acking.coalescer)


def _deduplication(_: Parts) -> Feature:
    return deduplication.register()


def _expiry(_: Parts) -> Feature:
    return expiry.register()


def _priorities(parts: Parts) -> Feature:
    return priorities.register(parts.core)


def _delayed(parts: Parts) -> Feature:
    kept = timedelta(hours=parts.config.delivery_record_hours)
    return delayed.register(
        parts.core,
        next_due=parts.next_due,
        kept=kept,
        max_scheduled_messages=parts.config.max_scheduled_messages,
    )


def _schedules(parts: Parts) -> Feature:
    return schedules.register(
        parts.core,
        preparation=parts.messages.publishing.preparation,
        next_due=parts.next_due,
        check_publisher=parts.guard.check_publisher,
    )


def _outbox(parts: Parts) -> Feature:
    return outbox.register(
        parts.core,
        preparation=parts.messages.publishing.preparation,
        next_due=parts.next_due,
        acks=parts.messages.acking.coalescer,
    )


def _retraction(parts: Parts) -> Feature:
    return retraction.register(
        parts.core, preparation=parts.messages.publishing.preparation, next_due=parts.next_due
    )


def _operations(parts: Parts) -> Feature:
    return operations.register(
        parts.operations, needed_to_start=parts.needed_to_start, kept_days=parts.config.operation_days
    )


def _dead_letters(parts: Parts) -> Feature:
    return dead_letters.register(
        parts.core,
        preparation=parts.messages.publishing.preparation,
        check_publisher=parts.guard.check_publisher,
        operations=parts.operations,
        replica_reads=parts.replica_reads,
        turns=parts.query_turns,
        interval_seconds=parts.config.dead_letter_interval_seconds,
    )


def _import_export(parts: Parts) -> Feature:
    return import_export.register(
        parts.core,
        preparation=parts.messages.publishing.preparation,
        operations=parts.operations,
        replica_reads=parts.replica_reads,
        turns=parts.query_turns,
        tails=parts.messages.claiming.tails,
        kept_days=parts.config.operation_days,
    )


def _purge(parts: Parts) -> Feature:
    return purge.register(parts.core, operations=parts.operations, seeks=parts.services.seeks)


def _resend(parts: Parts) -> Feature:
    return resend.register(parts.core)


def _held_messages(parts: Parts) -> Feature:
    return held_messages.register(parts.core, acks=parts.messages.acking.coalescer)


def _filters(parts: Parts) -> Feature:
    return filters.register(
        parts.core,
        subscriptions=parts.services.subscriptions,
        replica_reads=parts.replica_reads,
        turns=parts.query_turns,
    )


def _push_status(parts: Parts) -> Feature:
    return push_status.register(parts.core, tester=parts.pusher, pauses=parts.services.pauses)


def _inspect(parts: Parts) -> Feature:
    config, core = parts.config, parts.core
    fleet = FleetService(
        core.database,
        core.clock,
        core.storage,
        database_url=config.database_url,
        checks=make_checks(
            config.database_url,
            schema=config.database_schema,
            replica_url=config.replica_database_url,
            late_seconds=config.replica_max_lag_seconds,
            hot_url=config.hot_database_url,
            ignored_settings=config.ignored_settings,
        ),
        settings=config.shown_settings,
    )
    return inspect.register(
        parts.core,
        replica_reads=parts.replica_reads,
        turns=parts.query_turns,
        tails=parts.messages.claiming.tails,
        records=parts.messages.acking.records,
        check_publisher=parts.guard.check_publisher,
        fleet=fleet,
    )


def _lag_board(parts: Parts) -> Feature:
    return lag_board.register(
        parts.core,
        replica_reads=parts.replica_reads,
        turns=parts.query_turns,
        check_publisher=parts.guard.check_publisher,
        interval_seconds=parts.config.lag_interval_seconds,
    )


def _journal(parts: Parts) -> Feature:
    return journal.register(parts.core, turns=parts.query_turns, tails=parts.messages.claiming.tails)


def _events(parts: Parts) -> Feature:
    return events.register(
        parts.core,
        preparation=parts.messages.publishing.preparation,
        publishes=parts.messages.publishing.coalescer,
        check_publisher=parts.guard.check_publisher,
    )


def _metrics(parts: Parts) -> Feature:
    return metrics.register(parts.core, replica_reads=parts.replica_reads, gate=parts.gate)


def _history(parts: Parts) -> Feature:
    return history.register(parts.core)


def _share_links(parts: Parts) -> Feature:
    authorizer = parts.guard.authorizer
    return share_links.register(
        parts.core,
        authorize=None if authorizer is None else authorizer.check,
        has_console=parts.config.has_console,
    )


def _topic_stats(parts: Parts) -> Feature:
    return topic_stats.register(parts.core, authorizer=parts.guard.authorizer)


def _quotas(parts: Parts) -> Feature:
    return quotas.register(parts.core)


def _reset(parts: Parts) -> Feature:
    return reset.register(parts.core, allowed=parts.config.allow_reset)


def _secrets(parts: Parts) -> Feature:
    return secrets.register(parts.core, parts.guard.secrets)


def _audit(parts: Parts) -> Feature:
    return audit.register(parts.core)


def _project_settings(parts: Parts) -> Feature:
    return project_settings.register(parts.core)


def _projects(parts: Parts) -> Feature:
    return projects.register(parts.core, authorizer=parts.guard.authorizer)


def _search(parts: Parts) -> Feature:
    return search.register(parts.core, turns=parts.query_turns)


def _iam(parts: Parts) -> Feature:
    return iam.register(
        parts.core,
        authorizer=parts.guard.authorizer,
        changed=parts.guard.access_changed,
        base_url=parts.config.address,
        sessions=None if parts.guard.access is None else parts.guard.access.sessions,
        has_console=parts.config.has_console,
        resources=parts.policy_resources,
    )


FEATURES: Mapping[str, Register] = {
    # Properties of topics and their messages.
    "schemas": _schemas,
    "transforms": _transforms,
    "deduplication": _deduplication,
    "expiry": _expiry,
    "priorities": _priorities,
    # Publishing at a later time, and by other ways than a call.
    "delayed": _delayed,
    "schedules": _schedules,
    "outbox": _outbox,
    # Operations on published messages.
    "retraction": _retraction,
    "dead_letters": _dead_letters,
    "import_export": _import_export,
    "purge": _purge,
    "resend": _resend,
    "held_messages": _held_messages,
    "filters": _filters,
    "operations": _operations,
    # Inspection and reports.
    "push_status": _push_status,
    "lag_board": _lag_board,
    "inspect": _inspect,
    "journal": _journal,
    "events": _events,
    "metrics": _metrics,
    "history": _history,
    "topic_stats": _topic_stats,
    # Projects and access.
    "quotas": _quotas,
    "project_settings": _project_settings,
    "projects": _projects,
    "search": _search,
    "reset": _reset,
    "secrets": _secrets,
    "audit": _audit,
    "iam": _iam,
    "share_links": _share_links,
}
