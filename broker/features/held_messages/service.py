"""Gives messages back, and dead-letters them, by their message ids: ReleaseMessages and DeadLetterMessages (G2).

They do what a nack and a rejection by ack ids do, for an operator who has no ack ids: a consumer that holds a
message never answers, or a message fails again and again.  The row that has a message is read without a lock, and
then changed as by its ack id.  If the message has moved to another row meanwhile, it is read again.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from broker.core.acking.ack_batch import NewDeadline
from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.acking.delivery_attempts import exhaust_returned
from broker.core.backlog.delivery_state import BACKLOG, DeliveryState
from broker.core.backlog.outcome import Outcome
from broker.core.context.core import Core
from broker.core.log.message_ids import located
from broker.core.resources.subscription_service import existing_subscription
from broker.features.held_messages.rows import Held, Id, read_held
from broker.model.ack_id import AttemptName, MessageNames
from broker.model.dead_letter import NACK, REJECT
from broker.model.errors import FailedPrecondition, InvalidArgument
from broker.model.journal import Attribution, Author
from broker.model.message_id import parse_message_ids
from broker.model.names import leaf, project_of
from broker.model.subscription import Subscription
from broker.observability.log import fields_of

MAX_HELD = 1_000  # messages of one call
_TRIES = 3  # while messages move to other rows

Verb = Literal["release", "deadLetter"]

_ACTED_ON: Mapping[Verb, Sequence[DeliveryState]] = {
    "release": (DeliveryState.OUTSTANDING,),
    "deadLetter": (DeliveryState.OUTSTANDING, DeliveryState.RETRYING),
}
_DONE: Mapping[Verb, Outcome] = {"release": Outcome.RELEASED, "deadLetter": Outcome.DEAD_LETTERED}


class HeldMessageService:
    """Acts on messages that are with a consumer, or are retried.  Each is done once the call is answered."""

    def __init__(self, core: Core, coalescer: AckCoalescer) -> None:
        self._database = core.database
        self._clock = core.clock
        self._states = core.states
        self._coalescer = coalescer

    async def release(self, name: str, message_ids: Sequence[str], *, by: str = "") -> Mapping[str, Outcome]:
        """Give messages back that consumers hold: they are delivered again at once.

        With a message, later outstanding messages of its ordering key are given back too.  Raises InvalidArgument,
        NotFound (the subscription), FailedPrecondition (it is detached), Unavailable.
        """
        return await self._act("release", name, message_ids, by)

    async def dead_letter(self, name: str, message_ids: Sequence[str], *, by: str = "") -> Mapping[str, Outcome]:
        """Send messages to the dead-letter topic that consumers hold, or that are retried.

        Raises as `release` does, and FailedPrecondition if the subscription has no dead-letter topic.
        """
        return await self._act("deadLetter", name, message_ids, by)

    async def _act(self, verb: Verb, name: str, message_ids: Sequence[str], by: str) -> Mapping[str, Outcome]:
        if not 1 <= len(message_ids) <= MAX_HELD:
            raise InvalidArgument(f"messageIds has {len(message_ids)} ids, from 1 to {MAX_HELD:,} are needed.")
        given = list(dict.fromkeys(message_ids))
        parsed = parse_message_ids(given)
        async with self._database.transaction() as connection:
            subscription = await existing_subscription(connection, name)
        _check(subscription, verb)
        async with self._database.hot() as hot:
            ids = await located(hot, parsed)
        done = await self._done(verb, subscription, list(dict.fromkeys(ids)), Author(by))
        count = sum(outcome is _DONE[verb] for outcome in done.values())
        if count:
            what = "given back" if verb == "release" else "dead-lettered"
            who = f" by {by}" if by else ""
            self._states.report(
                "held messages",
                f"{count:,} messages of {name} are {what}{who}",
                fields=fields_of(name, principal=by, count=count),
            )
        return {text: done[id_] for text, id_ in zip(given, ids, strict=True)}

    async def _done(
        self, verb: Verb, subscription: Subscription, ids: Sequence[Id], author: Author
    ) -> Mapping[Id, Outcome]:
        outcomes = dict.fromkeys(ids, Outcome.UNKNOWN)
        left = list(ids)
        for _ in range(_TRIES):
            async with self._database.hot() as connection:
                found = await read_held(connection, subscription, left, now=self._clock.now())
            outcomes |= {id_: _outcome(each.state) for id_, each in found.items()}
            meant = {
                id_: each
                for id_, each in found.items()
                if each.attempt is not None and each.state in _ACTED_ON[verb]
            }
            moved = await self._change(verb, subscription, meant, author)
            outcomes |= dict.fromkeys(meant.keys() - moved, _DONE[verb])
            left = [id_ for id_ in meant if id_ in moved]
            if not left:
                break
        return outcomes

    async def _change(
        self, verb: Verb, subscription: Subscription, meant: Mapping[Id, Held], author: Author
    ) -> set[Id]:
        """Returns the messages that were not in their rows any more, or not the first of their key."""
        out = MessageNames()
        returned: dict[AttemptName, int] = {}  # first messages of their keys
        for each in meant.values():
            assert each.attempt is not None
            if each.is_out or not each.attempt.ordered:
                out.setdefault(each.attempt, set()).add(each.ordinal)
            else:
                returned[each.attempt] = each.ordinal
        again = await self._exhaust(subscription, returned)
        stale = await self._modify(verb, subscription, out, author) if out else {}
        return {
            id_
            for id_, each in meant.items()
            if each.attempt in again or (each.attempt is not None and each.ordinal in stale.get(each.attempt, ()))
        }

    async def _modify(
        self, verb: Verb, subscription: Subscription, messages: MessageNames, author: Author
    ) -> Mapping[AttemptName, set[int]]:
        attribution = None if subscription.journal is None else Attribution(subscription.journal, author)
        deadline = (
            NewDeadline(0, "nacked", failure=NACK, attribution=attribution)
            if verb == "release"
            else NewDeadline(0, "exhausted", failure=REJECT, attribution=attribution)
        )
        project = project_of(subscription.name)
        return await self._coalescer.modify_ack_deadline(messages, deadline, project=project)

    async def _exhaust(self, subscription: Subscription, messages: Mapping[AttemptName, int]) -> set[AttemptName]:
        """Dead-letters messages that wait for their next delivery.  Returns the attempts of those that moved."""
        again: set[AttemptName] = set()
        for shard_id in sorted({attempt.shard_id for attempt in messages}):
            async with self._database.hot() as connection:
                again |= await exhaust_returned(
                    connection,
                    shard_id=shard_id,
                    subscription_id=subscription.subscription_id,
                    messages={name: ordinal for name, ordinal in messages.items() if name.shard_id == shard_id},
                    failure=REJECT,
                    now=self._clock.now(),
                )
        return again


def _check(subscription: Subscription, verb: Verb) -> None:
    """Raises FailedPrecondition."""
    name = subscription.name
    if subscription.detached:
        raise FailedPrecondition(f"Subscription is detached (resource={leaf(name)}).")
    if verb == "deadLetter" and subscription.max_delivery_attempts is None:
        raise FailedPrecondition(
            "Messages can be dead-lettered only by a subscription with a dead-letter topic "
            f"(resource={leaf(name)})."
        )


def _outcome(state: DeliveryState) -> Outcome:
    """Returns the outcome of a message that is left alone."""
    if state is DeliveryState.EXHAUSTED:
        return Outcome.DEAD_LETTERED
    if state is DeliveryState.OUTSTANDING:  # it moves from row to row, or waits for another one of its key
        return Outcome.OUTSTANDING
    return Outcome.WAITING if state in BACKLOG else Outcome.ALREADY_SETTLED
