"""The bodies of what a claim hands out: each batch read once, however many subscriptions get messages of it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from broker.domain.delivery import StoredMessage
from broker.domain.stretch import Stretch
from broker.store.claim.request import ClaimRequest
from broker.store.driver import statements
from broker.store.driver.hot_connection import Bound
from broker.store.log.stored_messages import only_message, stored_messages

_READ_BATCHES = statements.hot("read_batches")


def read_bodies(request: ClaimRequest, runs: Iterable[Sequence[Stretch]], bodies: "Bodies") -> Iterator[Bound]:
    """What reads the batches of the stretches that `bodies` has not, range by range, for it to add."""
    distinct = {id(run): run for run in runs}.values()
    missing = bodies.missing(chain.from_iterable(distinct))
    ranges = list(_ranges(sorted(missing, key=attrgetter("first_seq"))))
    if not ranges:
        return
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

    def __init__(self) -> None:
        self._rows: dict[int, Any] = {}  # by the last sequence, which names a batch in its shard
        self._batches: dict[int, list[StoredMessage]] = {}
        self._runs: dict[int, list[StoredMessage] | None] = {}

    def missing(self, stretches: Iterable[Stretch]) -> list[Stretch]:
        """Those whose batch is not here."""
        return [stretch for stretch in stretches if stretch.batch not in self._rows]

    def add(self, rows: Iterable[Any]) -> None:
        """Batches as `read_bodies` reads them."""
        self._rows.update({row.batch: row for row in rows})

    def of(self, stretches: Sequence[Stretch]) -> list[StoredMessage] | None:
        """The messages of stretches, the same list for the same ones; None if one is not in the log any more."""
        run = id(stretches)
        if run not in self._runs:
            self._runs[run] = self._read(stretches)
        return self._runs[run]

    def _read(self, stretches: Sequence[Stretch]) -> list[StoredMessage] | None:
        messages: list[StoredMessage] = []
        for stretch in stretches:
            row = self._rows.get(stretch.batch)
            if row is None:
                return None
            if len(row.data) == 1:
                messages.append(only_message(row))
                continue
            batch = self._batch(row)
            start = stretch.first_seq - (stretch.batch - len(batch) + 1)
            messages += batch[start : start + stretch.length] if stretch.length < len(batch) else batch
        return messages

    def _batch(self, row: Any) -> list[StoredMessage]:
        if row.batch not in self._batches:
            first_seq = row.batch - len(row.data) + 1
            self._batches[row.batch] = stored_messages(
                first_seq, row.publish_time, row.ordering_key, row.attributes, row.data, row.shared, row.id_seqs
            )
        return self._batches[row.batch]
