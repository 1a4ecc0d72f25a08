"""The outstanding messages of streams, for their flow control (A7).

A message counts from when it is claimed for a stream until it is acknowledged or nacked, or its ack deadline has
passed.  The AckCoalescer reports acks and nacks that this process receives.  Other changes (acks through another
process, deadlines, seeks) are found by querying the database.  Only a stream whose window is full does so, and less
often the less it finds.
"""

import asyncio
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain

from broker.core.acking.delivery_attempts import read_open_attempts
from broker.core.process.database_clock import DatabaseClock
from broker.core.pulling.flow_control import FlowControl
from broker.db.driver.database import Database
from broker.model.ack_id import AttemptName, MessageNames, attempt_name
from broker.model.delivery import Delivery

SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 2.0  # between two checks of a stream that stays full
MAX_LEFT = 1_000  # clients that left with messages outstanding and may come back
LEFT = timedelta(seconds=600)  # for which they may: no ack deadline is longer unless it is extended


class Window:
    """The outstanding messages of one stream.  `client_id` is "" if the client gave none."""

    def __init__(self, subscription_id: int, client_id: str, flow_control: FlowControl) -> None:
        self.subscription_id = subscription_id
        self.client_id = client_id
        self.messages = self.bytes = 0
        self.left_at: datetime | None = None  # when its stream ended
        self.sizes: dict[AttemptName, dict[int, int]] = {}  # of the outstanding messages, by their ordinals
        self._flow_control = flow_control
        self._changed = asyncio.Event()
        self._pause = SHORTEST_PAUSE_SECONDS

    @property
    def owner(self) -> Hashable:
        """The owner of the stream's ordering keys."""
        return self.client_id or self

    @property
    def is_counted(self) -> bool:
        return self._flow_control.is_limited

    def available(self, most: int) -> int:
        """Returns how many messages may be delivered now, at most `most`."""
        available = self._flow_control.available(self.messages, self.bytes)
        return most if available is None else min(available, most)

    def bytes_left(self, most: int) -> int:
        """Returns how many bytes may be delivered now, at most `most`; a single message may be larger."""
        left = self._flow_control.bytes_left(self.bytes)
        return most if left is None else min(left, most)

    def add(self, attempt: AttemptName, delivery: Delivery) -> None:
        numbered = zip(delivery.ordinals, delivery.messages, strict=True)
        sizes = {ordinal: message.size for ordinal, message in numbered}
        self.sizes[attempt] = sizes
        self.messages += len(sizes)
        self.bytes += sum(sizes.values())

    def remove(self, attempt: AttemptName, ordinals: Iterable[int]) -> bool:
        """Count these no more; returns whether none of the attempt is left."""
        sizes = self.sizes[attempt]
        gone = [sizes.pop(ordinal) for ordinal in ordinals if ordinal in sizes]
        if gone:
            self.messages -= len(gone)
            self.bytes -= sum(gone)
            self._changed.set()
        if not sizes:
            del self.sizes[attempt]
        return not sizes

    def take_over(self, other: "Window") -> None:
        """Count what another window, of a stream that has ended, counts."""
        self.sizes, self.messages, self.bytes = other.sizes, other.messages, other.bytes

    def notify(self) -> None:
        """Wakes the stream, to check again whether there is room."""
        self._changed.set()

    async def wait_for_change(self) -> bool:
        """Waits until a message is no longer outstanding, or for `notify`.

        False: it is time to check in the database.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause):
                await self._changed.wait()
            self._changed.clear()
            return True
        return False

    def checked(self, *, found: bool) -> None:
        """Records the result of a check in the database: a message was no longer outstanding, or none."""
        self._pause = SHORTEST_PAUSE_SECONDS if found else min(self._pause * 2, LONGEST_PAUSE_SECONDS)


class Outstanding:
    """The windows of this process's streams."""

    def __init__(self, database: Database, clock: DatabaseClock) -> None:
        self._database = database
        self._clock = clock
        self._windows: dict[AttemptName, Window] = {}
        self._open: dict[int, set[Window]] = {}  # by subscription
        self._left: dict[
            tuple[int, str], Window
        ] = {}  # by subscription and client, in the order in which they left

    def open(self, subscription_id: int, client_id: str, flow_control: FlowControl) -> Window:
        """The window of a new stream.  It counts what the same client's last one left, if that has ended."""
        window = Window(subscription_id, client_id, flow_control)
        left = self._left.pop((subscription_id, client_id), None)
        if left is not None:
            if window.is_counted:
                window.take_over(left)
                self._windows.update(dict.fromkeys(window.sizes, window))
            else:
                self._forget(left)
        self._open.setdefault(subscription_id, set()).add(window)
        return window

    def close(self, window: Window) -> None:
        """Closes the window of a stream.

        Its messages are outstanding until they are settled or due.  May be repeated.
        """
        others = self._open.get(window.subscription_id, set())
        if window not in others:
            return
        others.discard(window)
        if not others:
            del self._open[window.subscription_id]
        key = (window.subscription_id, window.client_id)
        if not window.client_id or not window.sizes or key in self._left:
            self._forget(window)
            return
        window.left_at = self._clock.now()
        self._left[key] = window
        self._forget_left(window.left_at)

    def subscriptions(self) -> Collection[int]:
        """Returns the subscriptions that have open streams."""
        return self._open.keys()

    def notify(self) -> None:
        """Wakes the streams that wait for room, since a subscription has changed, which may be theirs."""
        for windows in self._open.values():
            for window in windows:
                window.notify()

    def handed_out(self, window: Window, deliveries: Sequence[Delivery]) -> None:
        """Counts messages that were claimed for the window's stream."""
        if window.is_counted:
            for delivery in deliveries:
                attempt = attempt_name(window.subscription_id, delivery)
                window.add(attempt, delivery)
                self._windows[attempt] = window

    def remove(self, messages: Iterable[Mapping[AttemptName, Collection[int]]]) -> None:
        """Removes messages that are no longer outstanding: settled or due.

        While nothing is counted, `messages` is not iterated.
        """
        if not self._windows:
            return
        for attempt, ordinals in chain.from_iterable(part.items() for part in messages):
            window = self._windows.get(attempt)
            if window is not None and window.remove(attempt, ordinals):
                del self._windows[attempt]
                key = (window.subscription_id, window.client_id)
                if not window.sizes and self._left.get(key) is window:
                    del self._left[key]

    async def check(self, window: Window) -> None:
        """See in the database what of the window is still out."""
        by_shard: dict[int, list[AttemptName]] = {}
        for attempt in window.sizes:
            by_shard.setdefault(attempt.shard_id, []).append(attempt)
        still_out: MessageNames = {}
        for shard_id, attempts in sorted(by_shard.items()):
            async with self._database.at_any_node(shard_id) as connection:
                still_out |= await read_open_attempts(
                    connection, shard_id=shard_id, attempts=attempts, now=self._clock.now()
                )
        checked = [attempt for attempts in by_shard.values() for attempt in attempts if attempt in window.sizes]
        gone = {attempt: set(window.sizes[attempt]) - still_out.get(attempt, set()) for attempt in checked}
        self.remove([gone])
        window.checked(found=any(gone.values()))

    def _forget_left(self, now: datetime) -> None:
        """Forgets the windows of clients that left long ago, and those beyond MAX_LEFT."""
        while self._left:
            key, window = next(iter(self._left.items()))
            if len(self._left) <= MAX_LEFT and window.left_at is not None and now - window.left_at < LEFT:
                return
            del self._left[key]
            self._forget(window)

    def _forget(self, window: Window) -> None:
        for attempt in window.sizes:
            self._windows.pop(attempt, None)
