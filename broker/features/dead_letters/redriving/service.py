"""Starts redrives of dead letters to their subscription or to a topic (G2); an extension."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from broker.core.backlog.outcome import Outcome
from broker.core.context.core import Core
from broker.core.filtering.changes import compiled
from broker.core.log.message_ids import located
from broker.core.resources.permitted import AskPermission, is_permitted
from broker.core.resources.subscription_service import existing_subscription
from broker.features.dead_letters.chosen import Chosen, RedriveOptions, check_redrive, chosen_by, to_json
from broker.features.dead_letters.dead_letter_groups import DeadLetterCount, count_chosen
from broker.features.dead_letters.redriving.rows import list_dead_letter_subscriptions
from broker.features.operations.operation import Operation, Origin, check_rate
from broker.features.operations.service import OperationService, open_target
from broker.model.errors import FailedPrecondition
from broker.model.message_id import FIRST_ID_SEQ
from broker.model.names import leaf
from broker.model.operation_verb import Verb
from broker.model.subscription import Subscription
from broker.model.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePlan:
    """The operation that was started, or would be with `validate_only`.

    `taken_from`: subscriptions from which dead letters are removed.  `left_alone`: subscriptions that keep theirs,
    because the caller may not consume them.
    """

    operation: Operation
    validate_only: bool
    taken_from: Sequence[str]
    left_alone: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenDeadLetters:
    """The chosen dead letters, as the operation stores them (`request`), and about how many messages they are
    (`total`).

    `outstanding`: how many of these a consumer has.  `is_estimate`: `total` is an upper bound.  `taken_from`,
    `left_alone`: as in RedrivePlan.
    """

    request: Mapping[str, Any]
    total: int
    is_estimate: bool
    outstanding: int = 0
    taken_from: Sequence[str]
    left_alone: Sequence[str]


class RedriveService:
    """Starts the operations that redriving/operation.py runs."""

    def __init__(self, core: Core, operations: OperationService) -> None:
        self._database = core.database
        self._clock = core.clock
        self._operations = operations

    async def redrive(
        self, name: str, request: RedriveOptions, *, origin: Origin, may_consume: AskPermission
    ) -> RedrivePlan:
        """Starts a redrive.  Dead letters stay in subscriptions for which `may_consume` raises PermissionDenied.

        Raises InvalidArgument (the filter, the rate, ids, times), NotFound, FailedPrecondition (the subscription is
        detached; the target is frozen or has transforms), QuotaExceeded (too many operations).
        """
        check_redrive(request)
        check_rate(request.max_rate)
        dead_letters = await self.choose(name, request, may_consume)
        operation = await self._operations.begin(
            Verb.REDRIVE,
            name,
            origin=origin,
            request=dead_letters.request,
            total=dead_letters.total,
            is_estimate=dead_letters.is_estimate,
            safeguards=request.safeguards,
        )
        if request.safeguards.validate_only and dead_letters.outstanding:
            operation = replace(operation, counts={Outcome.OUTSTANDING: dead_letters.outstanding})
        return RedrivePlan(
            operation=operation,
            validate_only=request.safeguards.validate_only,
            taken_from=dead_letters.taken_from,
            left_alone=dead_letters.left_alone,
        )

    async def choose(self, name: str, request: RedriveOptions, may_consume: AskPermission) -> ChosenDeadLetters:
        """Chooses dead letters.  Raises as `redrive`."""
        paths = compiled(request.filter)
        subscription, target = await self._resources(name, request.target)
        chosen = chosen_by(
            request,
            subscription_id=subscription.subscription_id,
            paths=(paths.filter_path, paths.body_path),
            now=self._clock.now(),
        )
        chosen = await self._located(chosen)
        found = await self._dead_letter_subscriptions(subscription)
        allowed = await consumable(found, may_consume)
        count = await self._count(subscription, chosen, allowed, max_counted=request.safeguards.max_counted)
        return ChosenDeadLetters(
            request=_stored(request, chosen, allowed, target),
            total=count.messages,
            is_estimate=count.is_at_most,
            outstanding=count.outstanding,
            taken_from=sorted(allowed.values()),
            left_alone=sorted(name for id_, name in found if id_ not in allowed),
        )

    async def _resources(self, name: str, target: str) -> tuple[Subscription, Topic | None]:
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, name)
            topic = await open_target(connection, target) if target else None
        if subscription.detached:
            raise FailedPrecondition(f"Subscription is detached (resource={leaf(name)}).")
        return subscription, topic

    async def _located(self, chosen: Chosen) -> Chosen:
        """Returns the choice with sequences for ids.  The ids of delayed messages are not made of sequences."""
        if not any(seq > FIRST_ID_SEQ for _, seq in chosen.ids):
            return chosen
        async with self._database.hot() as hot:
            return replace(chosen, ids=await located(hot, chosen.ids))

    async def _dead_letter_subscriptions(self, subscription: Subscription) -> Sequence[tuple[int, str]]:
        """Returns id and name of the subscriptions that may have dead letters of a subscription."""
        async with self._database.hot() as hot:
            return await list_dead_letter_subscriptions(
                hot, subscription_id=subscription.subscription_id, shard_ids=subscription.shard_ids
            )

    async def _count(
        self, subscription: Subscription, chosen: Chosen, allowed: Collection[int], *, max_counted: int | None
    ) -> DeadLetterCount:
        async with self._database.hot() as hot:
            return await count_chosen(
                hot,
                chosen,
                shard_ids=subscription.shard_ids,
                consumable=allowed,
                now=self._clock.now(),
                max_counted=max_counted,
            )


def _stored(
    request: RedriveOptions, chosen: Chosen, allowed: Iterable[int], target: Topic | None
) -> Mapping[str, Any]:
    """Returns the choice in the form in which the operation stores it."""
    stored: dict[str, Any] = {"chosen": to_json(chosen), "consumable": sorted(allowed)}
    if target is not None:
        stored |= {"targetTopic": target.name, "targetId": target.topic_id}
    if request.max_rate is not None:
        stored["maxMessagesPerSecond"] = request.max_rate
    return stored


async def consumable(subscriptions: Iterable[tuple[int, str]], may_consume: AskPermission) -> dict[int, str]:
    """Returns id and name of those of the subscriptions from which the caller may remove dead letters."""
    return {id_: name for id_, name in subscriptions if await is_permitted(may_consume, name)}
