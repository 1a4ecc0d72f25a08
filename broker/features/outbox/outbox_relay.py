"""The outbox relay: publishes and acknowledges what applications wrote in committed transactions (J7).

It takes the rows that it can see and never waits for others: a transaction that is open for an hour delays no
other.

A pass reads the outbox by number.  A project whose rows do not fit into a pass is *behind*.  While there is such a
project, half of the time goes to passes that skip its rows, so that the other projects do not wait for it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta

from broker.core.context.core import Core
from broker.features.outbox.acknowledger import OutboxAcknowledger
from broker.features.outbox.message_publisher import OutboxPublisher
from broker.features.outbox.rows import (
    EVER,
    Found,
    OutboxAcks,
    OutboxMessage,
    Outcome,
    find_outbox_rows,
    note_outbox_progress,
)
from broker.model.errors import BrokerError, Unavailable
from broker.model.names import project_of
from broker.observability.log import reason

AWAKE_SECONDS = 1.0  # after the last find, in which nobody need tell of a commit
_NOTE_SECONDS = 0.5  # between two notes of that
_FAR = 10_000  # numbers that were taken and never seen (rolled back), until that is noted, too
# A pass remembers what earlier ones saw; it must not where a server that knew less has taken another one's place.
_FORGET_SECONDS = 60.0
# What takes nothing just now, a frozen topic or a log that somebody has locked, is passed by for so long: thousands
# of its rows do not delay anybody else's.
_KEPT_SECONDS = 1.0
_AT_ONCE = 3  # topics and subscriptions, each on a connection
_PATIENCE_SECONDS = 2.0  # with one of them, while what has come of others waits for the next pass
# A project is behind for so long after the last pass that it filled.
_BEHIND_SECONDS = 2.0
# Between two passes at the other projects, if there was nothing of them; else as long as the pass took.
_OTHERS_SECONDS = 0.1

# Of each topic or subscription of a pass, by its name.
Outcomes = dict[str, Outcome]


class OutboxRelay:
    """Relays rows of the outbox.  At any time one process relays for a topic or subscription; others skip it."""

    def __init__(
        self,
        core: Core,
        messages: OutboxPublisher,
        acks: OutboxAcknowledger,
        *,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = core.database
        self._clock = core.clock
        self._messages = messages
        self._acks = acks
        self._states = core.states
        self._ticks = ticks
        self._since = EVER
        self._since_ever_at = ticks()
        self._kept: set[str] = set()
        self._kept_at = 0.0
        self._behind: dict[str, float] = {}  # projects, and when they filled a pass last
        self._behind_to = 0  # up to which number nothing of them is left
        self._others_to = 0  # and of the other projects
        self._others_at = 0.0
        self._noted_at = self._found_at = -AWAKE_SECONDS * 10
        self.committed = asyncio.Event()  # somebody has, as far as we were told

    def forget(self) -> None:
        """Forget what earlier passes saw; the next pass starts from the beginning."""
        self._since, self._since_ever_at, self._others_to = EVER, self._ticks(), 0
        self._kept.clear()

    @property
    def is_awake(self) -> bool:
        """Whether rows came a moment ago, so that writers do not notify the relay of the next ones.

        It is true for longer than the stored time: a commit that did not notify takes its time.
        """
        return self._ticks() - self._found_at < 1.5 * AWAKE_SECONDS

    async def run_once(self) -> bool:
        """Relays what one query of the outbox finds.  Returns whether there may be more at once.

        Raises a BrokerError if nothing could be done of all that can be seen; else what is left is found again.
        """
        now = self._ticks()
        if now - self._since_ever_at > _FORGET_SECONDS or (self._kept and now - self._kept_at > _KEPT_SECONDS):
            self.forget()
        is_done = bool(self._behind) and now >= self._others_at and await self._relay_others()
        async with self._database.hot() as connection:
            found = await find_outbox_rows(connection, since=self._since, kept=self._kept)
        if found.since.floor < self._since.floor:
            self.forget()
            return True
        outcomes = await self._relay_kept(found)
        if is_done := Outcome.DONE in outcomes.values() or is_done:
            self._found_at = self._ticks()
        left = {name for name, outcome in outcomes.items() if outcome is Outcome.LEFT}
        if found.complete and not left:
            self._since = found.since
        self._behind_to = _relayed_to(found, left)
        self._behind = {} if found.complete else self._now_behind(found)
        await self._note(found, max(self._behind_to, self._others_to), is_done=is_done)
        return not found.complete and (is_done or Outcome.KEPT in outcomes.values())

    def _now_behind(self, found: Found) -> dict[str, float]:
        """Returns the projects that took half of an equal part of the pass, or more, now or a moment ago."""
        now = self._ticks()
        rows, sizes = Counter[str](), Counter[str]()
        for project, size in _projects(found):
            rows[project] += 1
            sizes[project] += size
        least_rows, least_size = (counts.total() / len(rows) / 2 for counts in (rows, sizes))
        behind = {project: at for project, at in self._behind.items() if now - at < _BEHIND_SECONDS}
        return behind | {p: now for p in rows if rows[p] >= least_rows or (sizes[p] and sizes[p] >= least_size)}

    async def _relay_others(self) -> bool:
        """A pass at what is in the outbox for the projects that are not behind.  Returns whether some of it was
        taken.
        """
        begun_at = self._ticks()
        async with self._database.hot() as connection:
            found = await find_outbox_rows(connection, since=self._since, kept=self._kept, behind=self._behind)
        outcomes = await self._relay_kept(found)
        if is_done := Outcome.DONE in outcomes.values():
            self._found_at = self._ticks()
        now = self._ticks()
        self._others_at = now + (now - begun_at if outcomes else _OTHERS_SECONDS)
        left = {name for name, outcome in outcomes.items() if outcome is Outcome.LEFT}
        self._others_to = _relayed_to(found, left)
        if not found.complete:
            self._behind = self._now_behind(found)
        return is_done

    async def _relay_kept(self, found: Found) -> Outcomes:
        """Relay what was found, and remember what stays."""
        outcomes = await self._relay(found)
        kept = {name for name, outcome in outcomes.items() if outcome is Outcome.KEPT}
        if kept and not self._kept:
            self._kept_at = self._ticks()
        self._kept |= kept
        return outcomes

    async def _relay(self, found: Found) -> Outcomes:
        at_once = asyncio.Semaphore(_AT_ONCE)
        topics: dict[int, list[OutboxMessage]] = {}
        subscriptions: dict[int, list[OutboxAcks]] = {}
        for message in found.messages:
            topics.setdefault(message.topic_id, []).append(message)
        for acks in found.acks:
            subscriptions.setdefault(acks.subscription_id, []).append(acks)

        async def one(name: str, work: Awaitable[Outcome]) -> Outcome:
            try:
                async with at_once, asyncio.timeout(_PATIENCE_SECONDS):
                    return await work
            except TimeoutError:
                raise Unavailable(
                    f"What is staged for {name} was not taken up in {_PATIENCE_SECONDS:.0f} s; it is tried again."
                ) from None

        names = [some[0].topic for some in topics.values()] + [
            some[0].subscription for some in subscriptions.values()
        ]
        works = [self._messages.relay(some) for some in topics.values()]
        works += [self._acks.relay(of_one) for of_one in subscriptions.values()]
        results = await asyncio.gather(*map(one, names, works), return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in errors:
            if not isinstance(error, Exception) or (found.complete and len(errors) == len(results)):
                raise error
        outcomes: Outcomes = {}
        for name, result in zip(names, results, strict=True):
            outcome = result if isinstance(result, Outcome) else Outcome.KEPT
            if isinstance(result, Exception):
                self._report(name, result)
            # A name may be twice, of a topic that was deleted and of the one that has it now.
            outcomes[name] = max(outcome, outcomes.get(name, outcome), key=lambda each: each.value)
        return outcomes

    def _report(self, name: str, error: Exception) -> None:
        """Reports rows that cannot be relayed.  The others go on; these are tried again after _KEPT_SECONDS."""
        what = f"what is staged for {name} is not taken up, and is tried again and again"
        trace = None if isinstance(error, BrokerError) else error
        self._states.happens("staged messages that wait", name, what, reason(error), error=trace)

    async def _note(self, found: Found, relayed_to: int, *, is_done: bool) -> None:
        """Stores the progress.

        While rows come it is half a second old at most, so that the relay is known to be awake.
        """
        now = self._ticks()
        if now - self._noted_at < _NOTE_SECONDS and is_done:
            return
        if not is_done and relayed_to - found.relayed_to < _FAR:
            return
        self._noted_at = now
        awake = self._clock.now() + timedelta(seconds=AWAKE_SECONDS if is_done else 0.0)
        async with self._database.hot() as connection:
            await note_outbox_progress(
                connection,
                awake_until=awake,
                relayed_to=relayed_to,
                behind=self._behind,
                behind_to=self._behind_to,
            )


def _projects(found: Found) -> Iterator[tuple[str, int]]:
    """The project of each row, and the row's size."""
    yield from ((project_of(each.topic), each.size) for each in found.messages)
    yield from ((project_of(each.subscription), each.size) for each in found.acks)


def _relayed_to(found: Found, left: set[str]) -> int:
    """Returns the number up to which no visible row is left in the outbox, except rows that are kept.

    Those hold up no other rows.
    """
    numbers = [(each.n, each.topic) for each in found.messages] + [
        (each.n, each.subscription) for each in found.acks
    ]
    if behind := [n for n, name in numbers if name in left]:
        return min(behind) - 1
    return found.since.floor if found.complete else max(n for n, _ in numbers)
