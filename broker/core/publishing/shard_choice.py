"""Chooses the shard of a topic for a publish without an ordering key.

A process stays with one shard while the shard is busy, so that publishes continue to share commits.  It takes the
next one when the shard is idle, or after a number of messages, so that over a second all are used alike
(docs/decisions/0051).
"""

import random
from collections.abc import Callable, Sequence

_STAY_MESSAGES = 1_000
_MAX_TOPICS = 10_000  # whose choice is remembered


class ShardChoice:
    """The shard choices of one process."""

    def __init__(self, is_busy: Callable[[int], bool]) -> None:
        """`is_busy(shard_id)`: something waits to be stored there, or is being stored."""
        self._is_busy = is_busy
        self._choices: dict[
            int, tuple[int, int]
        ] = {}  # by topic: the current shard, and how many more messages it may get
        self._first = random.getrandbits(30)  # processes begin with different ones

    def choose(self, topic_id: int, shard_ids: Sequence[int], count: int) -> int:
        """Chooses the shard for so many messages."""
        if len(shard_ids) == 1:
            return shard_ids[0]
        at, left = self._choices.get(topic_id, (self._first, 0))
        shard_id = shard_ids[at % len(shard_ids)]
        if left <= 0 or not self._is_busy(shard_id):
            at, left = at + 1, _STAY_MESSAGES
            shard_id = shard_ids[at % len(shard_ids)]
        if len(self._choices) >= _MAX_TOPICS:
            self._choices.clear()
        self._choices[topic_id] = at, left - count
        return shard_id
