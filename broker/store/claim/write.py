"""The last round trip of a claim: writes what was decided, reads each body once, and commits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from broker.domain.attempt_ids import AttemptIds
from broker.domain.delivery import Delivery, StoredMessage, as_attempts
from broker.domain.ordered_run import OrderedRun, Phase
from broker.domain.stretch import Stretch, count_of, multirange
from broker.store.claim.bodies import Bodies, read_bodies
from broker.store.claim.columns import by_column
from broker.store.claim.ordered import new_runs, retimed_rows, rewrite_runs
from broker.store.claim.request import Claimed, ClaimRequest, More, Quiet
from broker.store.claim.work import Work
from broker.store.driver import statements
from broker.store.driver.hot_connection import NOTHING_CHANGED, Bound, HotConnection
from broker.store.driver.statements import COMMIT
from broker.store.log.due_attempt import replacements

_REPLACE_ATTEMPTS = statements.hot("replace_attempts")
_MOVE_CURSORS = statements.hot("move_cursors")
_READ_NEXT_DELIVERY_ATS = statements.hot("read_next_delivery_ats")
_INSERT_DELIVERY_ATTEMPTS = statements.hot("insert_delivery_attempts")


class _Attempt(NamedTuple):
    """What a demand of a work gets under one attempt id.

    `run`: the row that it goes out under; without one it needs a row.  `ordered`: it holds a key; `returned`
    messages of that wait with it.
    """

    work: Work
    demand: int
    attempt_id: int
    number: int
    stretches: Sequence[Stretch]
    run: OrderedRun | None = None
    ordered: bool = False
    returned: int = 0


async def write(
    connection: HotConnection, request: ClaimRequest, works: Sequence[Work], attempt_ids: AttemptIds
) -> Mapping[int, Claimed]:
    """Make it so, durably if anything is handed out; what became of each, by subscription_id."""
    attempts = list(_attempts(request, works, attempt_ids))
    at = request.handed_out_at()
    asking = [work for work in works if _asks_for_next(work)]
    batch = _Batch()
    batch.add(*_rewritten_rows(request, works), *_moved_cursors(request, works))
    # Before what goes out now is written, which is not meant, and after retry delays were.
    batch.add(*_next_delivery_ats(request, asking), takes=True)
    batch.add(*rewrite_runs(request, works, at), *_new_rows(request, attempts, at))
    batch.add(*read_bodies(request, [attempt.stretches for attempt in attempts]), takes=True)
    # Without attempts nothing need wait for the disk: what was passed over would only be passed over again.
    ending = ((COMMIT, {}),) if attempts else NOTHING_CHANGED
    rows = batch.taken(await connection.run(*batch.statements, *ending))
    upcoming = {row.subscription_id: row.next_delivery_at for row in next(rows)} if asking else {}
    bodies = Bodies(next(rows)) if attempts else Bodies(())
    deliveries = _deliveries(request, attempts, bodies)
    return {
        work.subscription_id: Claimed(
            [deliveries.get((work.subscription_id, number), ()) for number in range(len(work.claimant.demands))],
            _rest(work, upcoming.get(work.subscription_id)),
        )
        for work in works
    }


class _Batch:
    """Statements of one round trip, and the rows of those that are taken."""

    def __init__(self) -> None:
        self.statements: list[Bound] = []
        self._taken: list[int] = []

    def add(self, *bound: Bound, takes: bool = False) -> None:
        if takes:
            self._taken += range(len(self.statements), len(self.statements) + len(bound))
        self.statements += bound

    def taken(self, rows: Sequence[list[Any]]) -> Iterator[list[Any]]:
        return iter([rows[number] for number in self._taken])


def _asks_for_next(work: Work) -> bool:
    """Whether somebody wants to know when the next redelivery falls due."""
    claimant = work.claimant
    wants = claimant.looks_for_due and (claimant.wants_next or work.portion.hungry)
    return wants and not work.more


def _rest(work: Work, upcoming: datetime | None) -> More | Quiet:
    if work.more:
        return More()
    return Quiet(min((time for time in (upcoming, work.portion.until) if time is not None), default=None))


# --- what goes out ------------------------------------------------------------------------------------------------


def _attempts(request: ClaimRequest, works: Sequence[Work], attempt_ids: AttemptIds) -> Iterator[_Attempt]:
    """What each demand gets: keys that are due, other redeliveries and fresh messages, fresh keys.

    A run that goes out, or has lost messages, gets a new attempt id.
    """
    found = [attempt for work in works for attempt in _of_work(work)]
    lost = [run for work in works for run in work.runs if run.phase is Phase.LOST]
    ids = iter(attempt_ids.take(len(found) + len(lost), now=request.now))
    for run in lost:
        run.new_attempt_id = next(ids)
    for attempt in found:
        attempt_id = next(ids)
        if attempt.run is not None:
            attempt.run.new_attempt_id = attempt_id
        yield attempt._replace(attempt_id=attempt_id)


def _of_work(work: Work) -> Iterator[_Attempt]:
    portion = work.portion
    for demand, (runs, share) in enumerate(zip(portion.runs, portion.shares, strict=True)):
        for run, taken in runs:
            returned = len(run.behind())
            yield _Attempt(work, demand, 0, run.next_number, taken, run=run, ordered=True, returned=returned)
        fresh: Sequence[Stretch] = share.fresh
        if work.claimant.ordered:
            fresh = [message for message in fresh if message.ordering_key is None]
        for number, stretches in as_attempts(share.redelivered, fresh):
            yield _Attempt(work, demand, 0, number, stretches)
        if work.claimant.ordered:
            for of_key in _by_key(share.fresh):
                yield _Attempt(work, demand, 0, 1, of_key, ordered=True)


def _by_key(fresh: Iterable[Stretch]) -> Iterable[Sequence[Stretch]]:
    runs: dict[str, list[Stretch]] = {}
    for message in fresh:
        if message.ordering_key is not None:
            runs.setdefault(message.ordering_key, []).append(message)
    return runs.values()


def _deliveries(
    request: ClaimRequest, attempts: Iterable[_Attempt], bodies: Bodies
) -> dict[tuple[int, int], list[Delivery]]:
    """By subscription and demand.

    A message whose partition was dropped since it was found is missing.  Its whole attempt is left to fall due,
    when it is taken out as every redelivery is that the log has no more.
    """
    deliveries: dict[tuple[int, int], list[Delivery]] = {}
    for attempt in attempts:
        messages: Sequence[StoredMessage] | None = bodies.of(attempt.stretches)
        if messages is not None:
            deliveries.setdefault((attempt.work.subscription_id, attempt.demand), []).append(
                Delivery(
                    request.shard_id,
                    attempt.attempt_id,
                    attempt.number,
                    messages,
                    ordered=attempt.ordered,
                    returned=attempt.returned,
                )
            )
    return deliveries


# --- what is written ----------------------------------------------------------------------------------------------


def _rewritten_rows(request: ClaimRequest, works: Sequence[Work]) -> Iterator[Bound]:
    """What is left of the due rows, if any has changed."""
    columns = replacements([(work.subscription_id, row) for work in works for row in work.due])
    retimed = list(retimed_rows(works))
    if retimed:
        of_runs = by_column(retimed)
        columns = of_runs if columns is None else {name: columns[name] + of_runs[name] for name in of_runs}
    if columns:
        yield _REPLACE_ATTEMPTS, {"shard_id": request.shard_id, **columns}


def _moved_cursors(request: ClaimRequest, works: Iterable[Work]) -> Iterator[Bound]:
    """Only of those that have passed something, or have looked at something due."""
    moved = [work for work in works if work.portion.position is not None or work.due or work.runs]
    if moved:
        positions = [work.portion.position or work.cursor[:2] for work in moved]
        yield (
            _MOVE_CURSORS,
            {
                **request.where([work.subscription_id for work in moved]),
                "next_publish_times": [publish_time for publish_time, _ in positions],
                "next_seqs": [seq for _, seq in positions],
                "due_floors": [work.due_floor(request.now) for work in moved],
            },
        )


def _next_delivery_ats(request: ClaimRequest, asking: Sequence[Work]) -> Iterator[Bound]:
    if asking:
        where = request.where([work.subscription_id for work in asking])
        yield _READ_NEXT_DELIVERY_ATS, {**where, "now": request.now}


def _new_rows(request: ClaimRequest, attempts: Sequence[_Attempt], at: datetime) -> Iterator[Bound]:
    plain = [attempt for attempt in attempts if not attempt.ordered]
    if plain:
        yield _INSERT_DELIVERY_ATTEMPTS, {"shard_id": request.shard_id, "now": at, **_plain_rows(plain, at)}
    of_keys = [attempt for attempt in attempts if attempt.ordered and attempt.run is None]
    yield from new_runs(request, [(a.work.claimant, a.attempt_id, a.stretches) for a in of_keys], at)


def _plain_rows(attempts: Sequence[_Attempt], at: datetime) -> dict[str, Any]:
    durations = {attempt.work.claimant.ack_deadline for attempt in attempts}
    ack_deadlines = {duration: at + duration for duration in durations}
    runs = {id(attempt.stretches): attempt.stretches for attempt in attempts}  # rows often hold the very same
    held = {name: (multirange(run), count_of(run)) for name, run in runs.items()}
    return {
        "subscription_ids": [attempt.work.subscription_id for attempt in attempts],
        "attempt_ids": [attempt.attempt_id for attempt in attempts],
        "attempt_numbers": [attempt.number for attempt in attempts],
        "ack_deadlines": [ack_deadlines[attempt.work.claimant.ack_deadline] for attempt in attempts],
        "exactly_once": [attempt.work.claimant.exactly_once for attempt in attempts],
        "seqs": [held[id(attempt.stretches)][0] for attempt in attempts],
        "counts": [held[id(attempt.stretches)][1] for attempt in attempts],
        "first_publish_times": [attempt.stretches[0].publish_time for attempt in attempts],
        "last_publish_times": [attempt.stretches[-1].publish_time for attempt in attempts],
    }
