"""The bodies of what a claim hands out: each batch read once, however many subscriptions get messages of it."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from broker.domain.delivery import StoredMessage
from broker.domain.stretch import Stretch
from broker.store.claim.request import ClaimRequest
from broker.store.driver import statements
from broker.store.driver.hot_connection import Bound
from broker.store.log.messages import stored_messages

_READ_BATCHES = statements.hot("read_batches")


def read_bodies(request: ClaimRequest, runs: Sequence[Sequence[Stretch]]) -> Iterator[Bound]:
    """What reads the batches that the stretches are of, range by range; `Bodies` makes sense of its rows."""
    if not runs:
        return
    distinct = {id(run): run for run in runs}
    stretches = sorted({stretch for run in distinct.values() for stretch in run}, key=_place)
    ranges = list(_ranges(stretches))
    yield (
        _READ_BATCHES,
        {
            "shard_id": request.shard_id,
            "first_publish_times": [first.publish_time for first, _ in ranges],
            "first_batches": [first.batch for first, _ in ranges],
            "last_publish_times": [last.publish_time for _, last in ranges],
            "last_batches": [last.batch for _, last in ranges],
        },
    )


def _place(stretch: Stretch) -> tuple[datetime, int, int]:
    return stretch.publish_time, stretch.batch, stretch.first_seq


def _ranges(stretches: Iterable[Stretch]) -> Iterator[tuple[Stretch, Stretch]]:
    """The first and the last stretch of each range of batches without a gap."""
    first: Stretch | None = None
    last: Stretch | None = None
    for stretch in stretches:
        if first is None or last is None:
            first = stretch
        elif stretch.batch != last.batch and stretch.first_seq != last.batch + 1:
            yield first, last
            first = stretch
        last = stretch
    if first is not None and last is not None:
        yield first, last


class Bodies:
    """Batches that were read, as messages."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = {(row.publish_time, row.batch): row for row in rows}
        self._batches: dict[tuple[datetime, int], list[StoredMessage]] = {}
        self._runs: dict[int, list[StoredMessage] | None] = {}

    def of(self, stretches: Sequence[Stretch]) -> list[StoredMessage] | None:
        """The messages of stretches, the same list for the same ones; None if one is not in the log any more."""
        if id(stretches) not in self._runs:
            self._runs[id(stretches)] = self._read(stretches)
        return self._runs[id(stretches)]

    def _read(self, stretches: Sequence[Stretch]) -> list[StoredMessage] | None:
        messages: list[StoredMessage] = []
        for stretch in stretches:
            batch = self._batch((stretch.publish_time, stretch.batch))
            if batch is None:
                return None
            start = stretch.first_seq - (stretch.batch - len(batch) + 1)
            messages += batch[start : start + stretch.length] if stretch.length < len(batch) else batch
        return messages

    def _batch(self, name: tuple[datetime, int]) -> list[StoredMessage] | None:
        known = self._batches.get(name)
        if known is None and (row := self._rows.get(name)) is not None:
            first_seq = row.batch - len(row.data) + 1
            known = stored_messages(first_seq, row.publish_time, row.ordering_key, row.attributes, row.data)
            self._batches[name] = known
        return known
