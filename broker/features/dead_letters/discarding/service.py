"""Discards messages of a subscription, and dead letters; an extension (G2)."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from broker.core.backlog.outcome import Outcome
from broker.core.context.core import Core
from broker.core.filtering.changes import compiled
from broker.core.log.message_ids import id_seqs_at, located
from broker.core.resources.permitted import AskPermission
from broker.core.resources.subscription_service import existing_subscription
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.hot_transactions import in_hot_transaction
from broker.features.dead_letters.chosen import Chosen, RedriveOptions, check_redrive
from broker.features.dead_letters.dead_letter_groups import DeadLetterCount, count_chosen
from broker.features.dead_letters.discarding.discard import (
    MAX_DISCARDED,
    Discarded,
    DiscardOptions,
    check_discard,
    goes_on,
)
from broker.features.dead_letters.discarding.rows import (
    Discard,
    Done,
    Id,
    choose_dead_letters,
    discard,
    find_dead_letter_subscriptions,
)
from broker.features.dead_letters.redriving.service import consumable
from broker.model.errors import FailedPrecondition
from broker.model.journal import Author
from broker.model.message_id import FIRST_ID_SEQ, message_id, parse_message_id, parse_message_ids
from broker.model.names import leaf
from broker.model.page import invalid_page_token, page_token
from broker.model.preview import Preview, Safeguards
from broker.model.subscription import Subscription
from broker.model.timestamps import EVER
from broker.observability.log import fields_of
from broker.observability.metrics.families import DISCARDED

_MOST_STEPS = 10  # steps of a call, for messages that are far ahead of the cursor

CountLater = Callable[[HotConnection], Awaitable[DeadLetterCount]]


class DiscardService:
    """Discards messages before the call is answered, without an operation."""

    def __init__(self, core: Core) -> None:
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._attempt_ids = core.attempt_ids
        self._states = core.states
        self._counters = core.counters

    async def discard(
        self, name: str, options: DiscardOptions, *, by: str = "", may_consume: AskPermission
    ) -> Discarded:
        """Discards messages.  Dead letters stay in subscriptions for which `may_consume` raises PermissionDenied.

        Raises InvalidArgument (nothing is chosen, or an invalid choice), NotFound, FailedPrecondition (a detached
        subscription), Aborted (repeated conflicts with other calls, or an unexpected count), and Undone with the
        preview, if only that was requested.
        """
        check_redrive(options.dead_letters)
        check_discard(options)
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, name)
        if subscription.detached:
            raise FailedPrecondition(f"Subscription is detached (resource={leaf(name)}).")
        chosen = self._chosen_by(subscription, options.dead_letters)
        ids, rest = await self._first(subscription, options, chosen)
        if options.dead_letters.message_ids:
            given, ids = ids, await self._located(ids)
        else:
            given = await self._named(ids)
        asked = Discard(
            subscription_id=subscription.subscription_id,
            shard_ids=subscription.shard_ids,
            ids=ids,
            consumable=(),
            author=Author(principal=by),
            now=self._clock.now(),
        )
        asked = replace(asked, consumable=await self._consumable(asked, may_consume))
        if options.dead_letters.safeguards.asked:
            later = partial(self._count_later, subscription, chosen, rest, options.dead_letters.safeguards)
            outcomes, left_alone = await self._drop_guarded(asked, options.dead_letters.safeguards, later)
        else:
            outcomes, left_alone = await self._drop(asked)
        count = Counter(outcomes.values())[Outcome.DISCARDED]
        if count:
            self._counters.subscription(name)[DISCARDED] += count
            what = f"{count:,} messages of {name} are discarded{f' by {by}' if by else ''}"
            self._states.report("discards", what, fields=fields_of(name, principal=by, count=count))
        names = {message_id(*id_): message_id(*named) for id_, named in zip(ids, given, strict=True)}
        outcomes = {names[id_]: outcome for id_, outcome in outcomes.items()}
        return Discarded(outcomes=outcomes, left_alone=left_alone, rest=rest)

    async def _located(self, ids: Sequence[Id]) -> Sequence[Id]:
        """Returns the sequences of messages.  The ids of delayed messages are not made of them."""
        if not any(seq > FIRST_ID_SEQ for _, seq in ids):
            return ids
        async with self._database.hot() as hot:
            return await located(hot, ids)

    async def _named(self, sequences: Sequence[Id]) -> Sequence[Id]:
        async with self._database.hot() as hot:
            names = await id_seqs_at(hot, sequences)
        return [(shard_id, names[shard_id, seq]) for shard_id, seq in sequences]

    def _chosen_by(self, subscription: Subscription, dead_letters: RedriveOptions) -> Chosen:
        paths = compiled(dead_letters.filter)
        return Chosen(
            subscription_id=subscription.subscription_id,
            since=max(dead_letters.start_time or EVER, EVER),
            until=dead_letters.until(self._clock.now()),
            reasons=tuple(dead_letters.reasons),
            filter_path=paths.filter_path,
            body_path=paths.body_path,
        )

    async def _first(
        self, subscription: Subscription, options: DiscardOptions, chosen: Chosen
    ) -> tuple[Sequence[Id], tuple[int, int] | None]:
        """Returns the ids of this call, and where the next call continues if more dead letters are chosen."""
        dead_letters, now = options.dead_letters, self._clock.now()
        if dead_letters.message_ids:
            return list(dict.fromkeys(parse_message_ids(dead_letters.message_ids))), None
        start = options.start
        if start is not None and start[0] not in subscription.shard_ids:
            raise invalid_page_token(page_token(*start))
        later = sorted(id_ for id_ in subscription.shard_ids if start is None or id_ >= start[0])
        found: list[Id] = []
        async with self._database.hot() as hot:
            for number, shard_id in enumerate(later):
                from_seq = start[1] if start is not None and start[0] == shard_id else 1
                seqs, next_seq = await choose_dead_letters(
                    hot, chosen=chosen, shard_id=shard_id, from_seq=from_seq, most=MAX_DISCARDED, now=now
                )
                found += [(shard_id, seq) for seq in seqs]
                if next_seq is not None:
                    return found, (shard_id, next_seq)
                if found and number + 1 < len(later):
                    return found, (later[number + 1], 1)
        return found, None

    async def _consumable(self, asked: Discard, may_consume: AskPermission) -> frozenset[int]:
        async with self._database.hot() as hot:
            found = await find_dead_letter_subscriptions(hot, asked)
        return frozenset(await consumable(found, may_consume))

    async def _drop(self, asked: Discard) -> tuple[Mapping[str, Outcome], Sequence[str]]:
        outcomes: dict[str, Outcome] = {}
        left_alone: set[str] = set()
        for _ in range(_MOST_STEPS):
            if not asked.ids:
                break
            done = await self._step(asked)
            outcomes |= {message_id(*id_): outcome for id_, outcome in done.outcomes.items()}
            left_alone |= {*done.left_alone}
            for subscription_id in done.woken:
                self._wake_ups.redeliverable(subscription_id)
            again = [parse_message_id(text) for text in goes_on(outcomes)]
            asked = replace(asked, ids=again, now=self._clock.now())
        return outcomes, sorted(left_alone)

    async def _drop_guarded(
        self, asked: Discard, safeguards: Safeguards, count_later: CountLater
    ) -> tuple[Mapping[str, Outcome], Sequence[str]]:
        """Discards in one transaction, which is rolled back unless the outcome is as expected.

        Raises NotAsExpected, FailedPrecondition, Undone.
        """

        async def drop(connection: HotConnection) -> tuple[Mapping[str, Outcome], set[str], set[int]]:
            outcomes: dict[str, Outcome] = {}
            left_alone: set[str] = set()
            woken: set[int] = set()
            step = asked
            for _ in range(_MOST_STEPS):
                if not step.ids:
                    break
                done = await discard(connection, step, self._attempt_ids)
                safeguards.check_newest(done.newest, "One of the messages came")
                outcomes |= {message_id(*id_): outcome for id_, outcome in done.outcomes.items()}
                left_alone |= {*done.left_alone}
                woken |= {*done.woken}
                step = replace(step, ids=[parse_message_id(text) for text in goes_on(outcomes)])
            later = await count_later(connection)
            count = Counter(outcomes.values())[Outcome.DISCARDED] + later.messages
            preview = Preview(
                count=count,
                unit="message",
                time=asked.now,
                losses={"messages": count},
                is_estimated=later.is_at_most,
            )
            safeguards.settle(preview)
            return outcomes, left_alone, woken

        outcomes, left_alone, woken = await in_hot_transaction(self._database, drop)
        for subscription_id in woken:
            self._wake_ups.redeliverable(subscription_id)
        return outcomes, sorted(left_alone)

    async def _count_later(
        self,
        subscription: Subscription,
        chosen: Chosen,
        rest: Id | None,
        safeguards: Safeguards,
        connection: HotConnection,
    ) -> DeadLetterCount:
        """Counts the chosen messages that are left to the calls that continue at `rest`."""
        if rest is None:
            return DeadLetterCount(0, 0, is_at_most=False)
        return await count_chosen(
            connection,
            chosen,
            shard_ids=subscription.shard_ids,
            consumable=(),
            now=self._clock.now(),
            start=rest,
            max_counted=safeguards.max_counted,
        )

    async def _step(self, asked: Discard) -> Done:
        return await in_hot_transaction(
            self._database, lambda connection: discard(connection, asked, self._attempt_ids)
        )
