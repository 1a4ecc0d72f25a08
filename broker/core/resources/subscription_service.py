"""Implements the calls about subscriptions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from broker.access.credentials.account_rows import find_service_account
from broker.access.policies.policy_rows import forget_policy
from broker.access.secrets.secrets import Secrets
from broker.access.secrets.webhook_secrets import sealed
from broker.core.catalog import push_state_rows as push_states
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.context.core import Core
from broker.core.filtering.changes import compiled_filter
from broker.core.resources.resource_field import ResourceField, not_supported, resolved
from broker.db.driver.database import ResourceConnection
from broker.model.errors import AlreadyExists, BrokerError, FailedPrecondition, InvalidArgument, NotFound
from broker.model.field_mask import Update, check_field_mask
from broker.model.kept import check_kept
from broker.model.names import check_project, check_shape, leaf, not_found, project_of, random_name
from broker.model.page import Page, cut_page
from broker.model.preview import UNGUARDED, Preview, Safeguards
from broker.model.push_config import PushConfig
from broker.model.subscription import (
    IMMUTABLE_FIELDS,
    MIN_DELIVERY_ATTEMPTS,
    MUTABLE_FIELDS,
    Subscription,
    check_new_subscription,
    check_subscription,
)

_TRANSFORMS = "message_transforms"  # in field masks


def subscription_not_found(name: str) -> BrokerError:
    """NotFound, or InvalidArgument for a name that no subscription can have."""
    return not_found("Subscription does not exist", name, "subscriptions")


async def existing_subscription(connection: ResourceConnection, name: str) -> Subscription:
    """The subscription of this name.  Raises NotFound."""
    subscription = await subscriptions.find_subscription(connection, name=name)
    if subscription is None:
        raise subscription_not_found(name)
    return subscription


async def attached_subscription(connection: ResourceConnection, name: str) -> Subscription:
    """The subscription of this name.  Raises NotFound, FailedPrecondition (it is detached)."""
    subscription = await existing_subscription(connection, name)
    if subscription.detached:
        raise FailedPrecondition(f"Subscription is detached (resource={leaf(name)}).")
    return subscription


async def locked_subscription(connection: ResourceConnection, name: str) -> Subscription:
    """The subscription of this name, kept from changing until the transaction ends.  Raises NotFound."""
    subscription = await subscriptions.lock_subscription(connection, name=name)
    if subscription is None:
        raise subscription_not_found(name)
    return subscription


class MeasureBacklog(Protocol):
    """Counts what is lost with a subscription that the caller has locked (core/backlog/seeking/backlog_loss.py)."""

    async def __call__(
        self, connection: ResourceConnection, subscription: Subscription, *, now: datetime, safeguards: Safeguards
    ) -> Preview:
        """Locks the backlog so that nothing is claimed or acked until the transaction ends, nor published if
        `safeguards` limit the action.  Returns the preview of deleting the subscription.

        Raises Aborted (messages came after `asOf`).
        """


class SubscriptionService:
    """The subscriptions of Google's Subscriber service.  Every change is announced to all processes."""

    def __init__(
        self,
        core: Core,
        *,
        secrets: Secrets,
        measure_backlog: MeasureBacklog,
        min_delivery_attempts: int = MIN_DELIVERY_ATTEMPTS,
        only_own_accounts: bool = False,
    ) -> None:
        """`secrets` encrypt those of webhooks.  `only_own_accounts`: pushes carry tokens of this broker's service
        accounts alone.
        """
        self._measure_backlog = measure_backlog
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._secrets = secrets
        self._admission = core.admission
        self._fields: list[ResourceField[Subscription]] = []
        self._resources = core.resources
        self._min_delivery_attempts = min_delivery_attempts
        self._only_own_accounts = only_own_accounts

    def add_fields(self, fields: Iterable[ResourceField[Subscription]]) -> None:
        """Let a feature check and resolve its fields, from before the first call on."""
        self._fields.extend(fields)

    async def create_subscription(self, wanted: Subscription) -> Subscription:
        """Create a subscription; one without a name (gRPC) is given a random name.

        Raises InvalidArgument, NotFound (no such topic), AlreadyExists, ResourceExhausted (a quota).
        """
        if not wanted.name:
            wanted = replace(wanted, name=random_name(sibling=wanted.topic, collection="subscriptions"))
        check_new_subscription(wanted, min_delivery_attempts=self._min_delivery_attempts)
        self._check_supported(wanted, None)
        for field in self._fields:
            if field.check is not None:
                await field.check(wanted)
        if wanted.filter:
            wanted = replace(wanted, **compiled_filter(wanted.filter)._asdict())
        async with self._database.transaction() as connection:
            topic_id = await topics.share_topic(connection, name=wanted.topic)
            if topic_id is None:
                raise not_found("Subscription topic does not exist", wanted.topic, "topics")
            await _require_dead_letter_topic(connection, wanted)
            await self._require_account(connection, wanted)
            wanted = await resolved(self._fields, connection, wanted, None)
            subscription = await subscriptions.insert_subscription(
                connection,
                subscription=sealed(wanted, self._secrets),
                topic_id=topic_id,
                now=self._clock.now(),
            )
            if subscription is not None:
                await self._admission.check_count(connection, project_of(wanted.name), "subscriptions")
                await forget_policy(connection, schema=self._database.schema, resource=wanted.name)
        if subscription is None:
            raise AlreadyExists(f"Subscription already exists (resource={leaf(wanted.name)}).")
        self._resources.report_read(subscription)
        await self._wake_ups.announce(wanted.name)
        return subscription

    def _check_supported(self, subscription: Subscription, current: Subscription | None) -> None:
        """Raise FailedPrecondition for new transforms if this broker has none."""
        if not subscription.transforms_messages or any(field.path == _TRANSFORMS for field in self._fields):
            return
        if current is None or subscription.transforms != current.transforms:
            raise not_supported("messageTransforms", subscription.name)

    async def get_subscription(self, name: str) -> Subscription:
        """Raises NotFound."""
        async with self._database.transaction() as connection:
            return await existing_subscription(connection, name)

    async def update_subscription(self, update: Update[Subscription]) -> Subscription:
        """Change what the mask names.  Raises InvalidArgument, NotFound; nothing is changed then."""
        if not update.paths:
            await self.get_subscription(update.name)  # raises NotFound before other errors, as Google does
        check_field_mask(update.paths, resource="Subscription", mutable=MUTABLE_FIELDS, immutable=IMMUTABLE_FIELDS)
        fields = update.fields
        named = [field for field in self._fields if field.path in fields]
        for field in named:
            if field.check is not None:
                await field.check(update.wanted(await self.get_subscription(update.name)))
        async with self._database.transaction() as connection:
            current = await locked_subscription(connection, update.name)
            subscription = current.updated(update.wanted(current), fields)
            self._check_supported(subscription, current)
            # A policy that was allowed before does not block other changes.
            floor = self._min_delivery_attempts if "dead_letter_policy" in fields else 1
            check_subscription(subscription, min_delivery_attempts=floor)
            if subscription.kept != current.kept:
                check_kept(subscription.kept)
            if "dead_letter_policy" in fields:
                await _require_dead_letter_topic(connection, subscription)
            if "push_config" in fields:
                await self._require_account(connection, subscription)
            subscription = await resolved(named, connection, subscription, current)
            subscription = sealed(subscription, self._secrets)
            await subscriptions.update_subscription(connection, subscription=subscription, now=self._clock.now())
            if "push_config" in fields:
                await self._push_anew(connection, subscription, instead_of=current.push_config)
            if "dead_letter_policy" in fields:
                self._resources.report_read(await existing_subscription(connection, subscription.name))
        await self._wake_ups.announce(subscription.name)
        return subscription

    async def create_or_update_subscription(
        self, wanted: Subscription, update: Update[Subscription]
    ) -> Subscription:
        """Create the subscription, or change the one that has its name.  Raises as those do; an extension (A12)."""
        # Update first: values that only a creation checks, such as the topic, may be absent or deleted by now.
        try:
            return await self.update_subscription(update)
        except NotFound:
            pass
        try:
            return await self.create_subscription(wanted)
        except AlreadyExists:  # another caller created it in between
            return await self.update_subscription(update)

    async def modify_push_config(self, name: str, push_config: PushConfig) -> None:
        """Switch between pull (no endpoint) and push at once; the backlog stays, a pause ends.

        Raises InvalidArgument, NotFound; nothing is changed then.
        """
        async with self._database.transaction() as connection:
            current = await locked_subscription(connection, name)
            subscription = replace(current, push_config=push_config)
            check_subscription(subscription, min_delivery_attempts=1)
            await self._require_account(connection, subscription)
            await subscriptions.update_subscription(connection, subscription=subscription, now=self._clock.now())
            await self._push_anew(connection, subscription, instead_of=current.push_config)
        await self._wake_ups.announce(name)

    async def delete_subscription(self, name: str, safeguards: Safeguards = UNGUARDED) -> Preview | None:
        """Delete a subscription and its backlog; its waiting pulls end with NOT_FOUND.

        Returns what would be lost if that is all that was asked for.  Raises NotFound, Aborted, FailedPrecondition.
        """
        async with self._database.transaction() as connection:
            subscription = await locked_subscription(connection, name)
            if preview := await self._measure(connection, subscription, safeguards):
                return preview
            await subscriptions.delete_subscription(connection, subscription_id=subscription.subscription_id)
            await forget_policy(connection, schema=self._database.schema, resource=name)
        await self._wake_ups.announce(name)
        return None

    async def detach_subscription(self, name: str, safeguards: Safeguards = UNGUARDED) -> Preview | None:
        """Detach a subscription from its topic: its backlog is dropped, pulls are refused.

        Returns what would be lost if that is all that was asked for.  Raises NotFound, Aborted, FailedPrecondition.
        """
        async with self._database.transaction() as connection:
            subscription = await locked_subscription(connection, name)
            if preview := await self._measure(connection, subscription, safeguards):
                return preview
            await subscriptions.detach_subscription(
                connection, subscription_id=subscription.subscription_id, now=self._clock.now()
            )
        await self._wake_ups.announce(name)
        return None

    async def _measure(
        self, connection: ResourceConnection, subscription: Subscription, safeguards: Safeguards
    ) -> Preview | None:
        """Returns what goes with a subscription that is locked, if that is all that was asked for.

        Nobody changes it until the transaction ends.  Raises Aborted, FailedPrecondition.
        """
        if not safeguards.asked:
            return None
        assert subscription.created_at is not None
        safeguards.check_existed(subscription.created_at, subscription.name)
        preview = await self._measure_backlog(
            connection, subscription, now=self._clock.now(), safeguards=safeguards
        )
        return safeguards.previewed(preview)

    async def list_subscriptions(self, project: str, page: Page) -> tuple[Sequence[Subscription], str]:
        """A page of a project's subscriptions by name, and the token of the next page.

        Raises InvalidArgument for a project that cannot be, unless it has subscriptions.
        """
        async with self._database.transaction() as connection:
            page = await subscriptions.cut_page_of_subscriptions(connection, project=project, page=page)
            found = await subscriptions.list_subscriptions(connection, project=project, page=page)
        if not found:
            check_project(project)
        return cut_page(found, page.size, lambda subscription: subscription.name)

    async def _push_anew(
        self, connection: ResourceConnection, subscription: Subscription, *, instead_of: PushConfig
    ) -> None:
        """Begins pushes by a new push config: a pause ends, and a new endpoint has no failures."""
        subscription_id = subscription.subscription_id
        if not subscription.push_config.endpoint and not instead_of.endpoint:
            return  # it is a pull subscription, as before
        if subscription.push_config.endpoint == instead_of.endpoint:
            await push_states.resume_pushes(connection, subscription_id=subscription_id)
        else:
            await push_states.forget_push_state(connection, subscription_id=subscription_id)
            await subscriptions.note_endpoint(connection, subscription_id=subscription_id, now=self._clock.now())

    async def _require_account(self, connection: ResourceConnection, subscription: Subscription) -> None:
        """Raises InvalidArgument if pushes would carry a token that is not of an account of this broker.

        The account is not deleted until the transaction ends: its deletion counts what refers to it.
        """
        token = subscription.push_config.oidc_token
        if token is None or not self._only_own_accounts:
            return
        email = token.service_account_email
        account = await find_service_account(connection, email=email, lock=True, shared=True)
        if account is None or account.email != email.lower():  # found by its unique id: the token has the address
            raise InvalidArgument(
                "pushConfig.oidcToken.serviceAccountEmail must be the address of a service account of this broker, "
                f"because callers must show who they are here; make one first (serviceAccountEmail={email})."
            )


async def _require_dead_letter_topic(connection: ResourceConnection, subscription: Subscription) -> None:
    if subscription.dead_letter_policy is None:
        return
    name = subscription.dead_letter_policy.dead_letter_topic
    check_shape(name, "topics")
    if await topics.find_topic(connection, name=name) is None:
        raise not_found("Dead letter topic not found", name, "topics")
